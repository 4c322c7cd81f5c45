import asyncio
import json
import logging
import sys

import pytest

from shine_node.cli.commands import run_command
from shine_node.cli.node_process import NodeFailed, NodeProcess
from tests.cli.program import run_program, write_config
from tests.support.nodes import run


@pytest.fixture
def kept_process():
    """What a node changes for its whole process is put back afterwards."""
    interval, handlers, level = sys.getswitchinterval(), logging.root.handlers[:], logging.root.level
    yield
    sys.setswitchinterval(interval)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_a_wrong_configuration_starts_nothing(tmp_path):
    found = run_program("run", "--config", write_config(tmp_path, "[storage]\nmapSizeMiB = 7"))
    assert (found.returncode, found.stdout) == (2, "")
    assert "storage.mapSizeMiB = 7 is out of range: write a whole number from 8 to 16777216" in found.stderr
    assert not (tmp_path / "data").exists()


def test_where_the_log_is_json_mistakes_are_too_and_so_is_the_place_where_it_listens(tmp_path):
    text = '[log]\nformat = "json"\n[storage]\nmapSizeMiB = 7\nsyncCommits = 3'
    found = run_program("run", "--config", write_config(tmp_path, text))
    assert (found.returncode, found.stdout) == (2, "")
    lines = [json.loads(line) for line in found.stderr.splitlines()]
    assert len(lines) == 2 and {line["level"] for line in lines} == {"critical"}
    assert any("storage.mapSizeMiB = 7 is out of range" in line["message"] for line in lines)

    async def story():
        config = write_config(tmp_path, '[log]\nformat = "json"')
        node = await NodeProcess.start(config)
        assert node.url.startswith("ws://127.0.0.1:") and node.url.endswith("/ws")
        assert await asyncio.to_thread(run_command, ["status", "--config", str(config)]) == 0
        await node.stop()
        assert all(json.loads(line)["level"] for line in node.log_tail(1000).splitlines())

    run(story())


@pytest.mark.parametrize("form", ["text", "json"])
def test_mistakes_have_the_form_of_the_log(tmp_path, capsys, form):
    config = write_config(tmp_path, f'[log]\nformat = "{form}"\n[storage]\nmapSizeMiB = 7')
    assert run_command(["run", "--config", str(config)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    message = json.loads(line)["message"] if form == "json" else line.removeprefix("shine-node: ")
    assert message.startswith(f"{config}:") and "storage.mapSizeMiB = 7 is out of range" in message


def test_without_a_file_it_says_how_to_get_one(tmp_path):
    found = run_program("run", "--config", tmp_path / "none.toml")
    assert found.returncode == 2 and "`shine-node init` writes one" in found.stderr


@pytest.mark.usefixtures("kept_process")
def test_what_keeps_the_node_from_starting(tmp_path):
    (tmp_path / "data").write_text("no folder")
    assert run_command(["run", "--config", str(write_config(tmp_path))]) == 2


def test_it_listens_until_it_is_told_to_stop(tmp_path):
    async def story():
        node = await NodeProcess.start(write_config(tmp_path))
        assert node.url.startswith("ws://127.0.0.1:") and node.url.endswith("/ws")
        await node.stop()  # which checks that the exit status is 0

    run(story())


def test_a_second_node_on_the_same_data_refuses_to_start(tmp_path):
    async def story():
        first = await NodeProcess.start(write_config(tmp_path))
        try:
            with pytest.raises(NodeFailed, match="in use by another process"):
                await NodeProcess.start(write_config(tmp_path))
        finally:
            await first.stop()

    run(story())
