"""``reload`` of real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shine_node.cli import control
from shine_node.cli.commands import run_command
from shine_node.cli.node_process import NodeProcess
from tests.cli.program import write_config
from tests.support.nodes import run


def test_what_has_changed_and_what_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path)
    words = ["reload", "--config", str(config)]

    async def story() -> None:
        node = await NodeProcess.start(config)
        try:
            assert await asyncio.to_thread(run_command, words) == 0
            assert capsys.readouterr().out == "nothing has changed\n"
            write_config(tmp_path, '[log]\nlevel = "debug"\n[registration]\ntoken = "geheim"')
            assert await asyncio.to_thread(run_command, words) == 0
            assert capsys.readouterr().out == (
                'changed: log.level ("info" → "debug")\nfor a restart: registration.token (changed)\n'
            )
            assert "geheim" not in node.log_tail(1000)
            with pytest.MonkeyPatch.context() as patch:  # the command's own look finds no mistake, the node's does
                whole = control.encode_request
                config.with_name("conf.d").mkdir()

                def late(*arguments: object) -> str:
                    config.with_name("conf.d").joinpath("bad.toml").write_text("[log]\nlevel = 1")
                    return whole(*arguments)  # type: ignore[arg-type]

                patch.setattr(control, "encode_request", late)
                assert await asyncio.to_thread(run_command, words) == 1
            said = capsys.readouterr().err
            assert said.startswith("shine-node: nothing was reloaded, all stays as it was: ")
            assert "log.level = 1" in said
        finally:
            await node.stop()

    run(story())


def test_no_node_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["reload", "--config", str(write_config(tmp_path))]) == 2
    assert "nobody answers at" in capsys.readouterr().err
    assert run_command(["reload", "--config", str(tmp_path / "none.toml")]) == 2
