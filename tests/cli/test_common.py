import argparse
from pathlib import Path

from shine_node.cli.common import DEFAULT_CONFIG, add_config_option, complain


def test_every_line_of_a_complaint_names_the_program(capsys):
    complain("one\ntwo")
    assert capsys.readouterr() == ("", "shine-node: one\nshine-node: two\n")


def test_the_configuration_file():
    parser = argparse.ArgumentParser()
    add_config_option(parser)
    assert parser.parse_args([]).config == DEFAULT_CONFIG
    assert parser.parse_args(["--config", "x.toml"]).config == Path("x.toml")
