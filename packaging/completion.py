#!/usr/bin/env python3
"""Prints the completion of ``shine-node`` for bash, made from the program's own parser."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from commands import Command, walk  # noqa: E402 - the line above makes it found

from shine_node.cli.commands import build_parser  # noqa: E402

SCRIPT = """\
# bash completion of shine-node, made from its parser

_shine_node() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path="" i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path ${COMP_WORDS[i]}" in
@paths@
        esac
    done
    case "$path $before" in
@values@
    esac
    case "$path" in
@words@
    esac
}

complete -F _shine_node shine-node
"""


def main() -> int:
    """Print the script."""
    commands = list(walk(build_parser()))
    paths = [command for command in commands if command.words]
    script = SCRIPT.replace("@paths@", f'            {_any(map(_path, paths))}) path+=" ${{COMP_WORDS[i]}}" ;;')
    script = script.replace("@values@", "\n".join(line for command in commands for line in _values(command)))
    print(script.replace("@words@", "\n".join(map(_words, commands))), end="")
    return 0


def _path(command: Command) -> str:
    return "".join(f" {word}" for word in command.words)


def _any(patterns: object) -> str:
    return "|".join(f'"{pattern}"' for pattern in patterns)  # type: ignore[attr-defined]


def _values(command: Command) -> list[str]:
    """Return what may follow each option that has a value: one of some words, a file, or nothing that is known."""
    lines = []
    for option in command.options:
        if option.flags and option.value:
            pattern = _any(f"{_path(command)} {flag}" for flag in option.flags)
            lines.append(f"        {pattern}) {_reply(option.choices, is_file=option.is_file)}return ;;")
    return lines


def _reply(words: tuple[str, ...], *, is_file: bool) -> str:
    if words:
        return f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$current")); '
    return 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current")); ' if is_file else ""


def _words(command: Command) -> str:
    flags = [flag for option in command.options for flag in option.flags if flag.startswith("--")]
    choices = [word for option in command.options if not option.flags for word in option.choices]
    words = " ".join([*command.parts, *choices, *flags])
    return f'        "{_path(command)}") COMPREPLY=($(compgen -W "{words}" -- "$current")) ;;'


if __name__ == "__main__":
    sys.exit(main())
