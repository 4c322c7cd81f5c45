"""``reload`` of a real node: taken whole, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from shine_node.cli.commands import run_command
from shine_node.cli.node_process import NodeProcess
from tests.cli.certificates import write_certificate
from tests.support.nodes import node_settings, run, toml_text


def test_a_node_that_does_not_run(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "node.toml"
    file.write_text(toml_text(node_settings("home", tmp_path)))
    assert run_command(["reload", "--config", str(file)]) == 1
    assert "the node does not run" in capsys.readouterr().err


def test_what_has_changed_what_waits_and_what_is_refused(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "node.toml"
    cert, key = write_certificate(tmp_path)
    settings = node_settings("home", tmp_path, server={"tlsCert": str(cert), "tlsKey": str(key)})
    file.write_text(toml_text(settings))

    async def reload() -> tuple[int, str, str]:
        status = await asyncio.to_thread(run_command, ["reload", "--config", str(file)])
        return status, *capsys.readouterr()

    async def story() -> None:
        process = await NodeProcess.start(file)
        try:
            assert await reload() == (0, "changed: nothing\n", "")

            file.write_text(toml_text(settings | {"limits": {"maxConnections": 7}, "crypto": {"threads": 3}}))
            said = "changed: limits.maxConnections\nfor a restart: crypto.threads\n"
            assert await reload() == (0, said, "")

            file.write_text(toml_text(settings | {"log": {"level": "loud"}}))
            status, shown, complaint = await reload()
            assert (status, shown) == (2, "")
            assert 'log.level = "loud"' in complaint

            file.write_text(toml_text(settings))
            key.write_text("no key")
            status, shown, complaint = await reload()
            assert (status, shown) == (1, "")
            assert complaint.startswith("shine-node: BAD_CONFIGURATION: ")
            await process.stop()
        finally:
            await process.kill()

    run(story())
