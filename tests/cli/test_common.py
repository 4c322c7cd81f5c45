import argparse
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from shine_node.cli import common
from shine_node.cli.common import (
    DEFAULT_CONFIG,
    add_config_option,
    add_keys_option,
    complain,
    drop_output,
    environ_of_service,
    key_file,
    number_between,
)


def test_every_line_of_a_complaint_names_the_program(capsys):
    complain("one\ntwo")
    assert capsys.readouterr() == ("", "shine-node: one\nshine-node: two\n")


def test_no_complaint_acts_on_the_terminal(capsys):
    complain("op: 400 \x1b[2J\x07: \u202ex")
    assert capsys.readouterr() == ("", "shine-node: op: 400 \\x1b[2J\\x07: \\u202ex\n")


def test_the_configuration_file():
    parser = argparse.ArgumentParser()
    add_config_option(parser)
    assert parser.parse_args([]).config == DEFAULT_CONFIG
    assert parser.parse_args(["--config", "x.toml"]).config == Path("x.toml")


def test_the_credentials_of_the_packaged_service_count_for_its_configuration(tmp_path, monkeypatch):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setattr(common, "CREDENTIALS", tmp_path / "credentials")
    assert environ_of_service(DEFAULT_CONFIG) == os.environ  # it does not run
    common.CREDENTIALS.mkdir()
    assert environ_of_service(DEFAULT_CONFIG)["CREDENTIALS_DIRECTORY"] == str(common.CREDENTIALS)
    assert environ_of_service(tmp_path / "other.toml") == os.environ
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/own")  # of a service of another name, which asks by itself
    assert environ_of_service(DEFAULT_CONFIG)["CREDENTIALS_DIRECTORY"] == "/run/own"


def test_the_key_file(monkeypatch, tmp_path):
    parser = argparse.ArgumentParser()
    add_keys_option(parser)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert key_file(parser.parse_args([])) == tmp_path / "shine-node" / "keys.json"
    assert key_file(parser.parse_args(["--keys", "x.json"])) == Path("x.json")


def test_numbers():
    read = number_between(1, 500)
    assert [read(text) for text in ("1", "007", "500")] == [1, 7, 500]
    for text in ("0", "501", "-1", "1.5", "", "x", "²", "1" * 5000):
        with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 1 to 500"):
            read(text)


def test_output_that_nobody_reads():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream, redirect_stdout(stream):
        print("this goes nowhere", end="")
        drop_output()
        sys.stdout.flush()
