"""The commands of ``shine-node`` and their options, read from the program's own parser, for what is made of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Command", "Option", "walk"]


class Option(NamedTuple):
    """An option, or a positional argument, which has no flags."""

    flags: tuple[str, ...]
    value: str
    """What stands for its value in the help; empty for a flag alone."""
    text: str
    choices: tuple[str, ...]
    is_file: bool


class Command(NamedTuple):
    """A command: ``words`` is ``("user", "add")``; that of the program itself is empty."""

    words: tuple[str, ...]
    usage: str
    text: str
    options: tuple[Option, ...]
    parts: tuple[str, ...]
    """The commands below it."""


def walk(parser: argparse.ArgumentParser, words: tuple[str, ...] = (), text: str = "") -> Iterator[Command]:
    """Yield a parser as a command, and then all commands below it, in the order of the help."""
    options: list[Option] = []
    below: list[tuple[str, str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below += [(name, texts.get(name, ""), one) for name, one in action.choices.items()]
        else:
            options.append(_option(parser, action))
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    parts = tuple(name for name, _, _ in below)
    yield Command(words, usage, parser.description or _sentence(text), tuple(options), parts)
    for name, one_text, one in below:
        yield from walk(one, (*words, name), one_text)


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    value = ""
    if not action.option_strings or action.nargs != 0:
        names = action.metavar if isinstance(action.metavar, str) else action.dest
        value = names if not action.option_strings or action.metavar else action.dest.upper()
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    choices = tuple(str(choice) for choice in action.choices or ())
    if choices and not action.metavar:
        value = "|".join(choices)
    return Option(tuple(action.option_strings), value, text, choices, action.type is Path or value in ("FILE", "DIR"))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
