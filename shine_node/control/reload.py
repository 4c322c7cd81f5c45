"""``Reload`` and SIGHUP: the certificate and the configuration are read anew, and taken whole or not at all (§10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shine_node.config import Config, Reload, load_config, plan_reload
from shine_node.protocol.errors import Refusal, ShineError

__all__ = ["BadConfiguration", "Reloader"]

log = logging.getLogger(__name__)

CERTIFICATE, AUTHORITIES = "certificate", "authorities"
"""What may have changed without a setting that did: the node's own certificate, and those that peers are checked by."""

_TLS = ("server.tlsCert", "server.tlsKey")


class BadConfiguration(Refusal):
    """The configuration or the certificate cannot be used; that of before stays in force."""

    status, code = 422, "BAD_CONFIGURATION"


class Reloader:
    """Brings into force what can be while the node runs.

    Args:
        path: the configuration file; ``None`` where the node was not started from one: then only the certificate is
            read.
        running: returns the configuration in force.
        read_certificate: reads a certificate and its key, and says what has changed by it, empty if nothing has; or
            raises a ``ShineError`` that says what is wrong, and nothing has changed then; ``None`` for a node that has
            none.
        read_authorities: reads those that peers are checked against, or raises a ``ShineError``; it returns what
            brings them into force and says whether they are others than before.
        apply: brings a configuration into force; it cannot fail.
    """

    def __init__(
        self,
        *,
        path: Path | None,
        running: Callable[[], Config],
        read_certificate: Callable[[Path, Path], str] | None,
        read_authorities: Callable[[], Callable[[], bool]],
        apply: Callable[[Config], None],
    ) -> None:
        self._path = path
        self._running = running
        self._read_certificate = read_certificate
        self._read_authorities = read_authorities
        self._apply = apply
        self._turn = asyncio.Lock()

    async def reload(self, payload: Mapping[str, Any]) -> dict[str, object]:
        """Read anew, and say in the log and in the answer what has changed and what waits for a restart.

        No member of the payload counts. What has changed is in the log at every level.

        Returns:
            ``changed`` and ``needRestart``: the names of settings that differ from those of before, in ``changed`` also
            ``certificate`` and ``authorities`` where the files hold others; ``values``: what each was and is, of a
            secret only that it changed.

        Raises:
            BadConfiguration: with all mistakes; nothing has changed.
        """
        async with self._turn:
            try:
                plan = await self._plan()
                server = plan.config.server
                authorities = self._read_authorities()
                if self._read_certificate is not None and server.tls_cert is not None and server.tls_key is not None:
                    plan = _with_other(plan, CERTIFICATE, self._read_certificate(server.tls_cert, server.tls_key))
            except ShineError as error:
                log.error("nothing was reloaded, all stays as it is: %s", error)
                raise BadConfiguration(str(error)) from None
            self._apply(plan.config)
            plan = _with_other(plan, AUTHORITIES, "others than before" if authorities() else "")
        _say(
            f"reloaded; changed: {plan.describe(plan.changed)}; for a restart: {plan.describe(plan.need_restart)}",
            always=bool(plan.changed),
        )
        return {
            "changed": list(plan.changed),
            "needRestart": list(plan.need_restart),
            "values": dict(plan.values),
        }

    async def reload_logged(self) -> None:
        """Do the same for a signal, which has nobody to answer: the log says what is wrong."""
        try:
            await self.reload({})
        except BadConfiguration:
            pass  # it is in the log
        except Exception:  # else the next signal would find nobody
            log.exception("a defect in the reload")

    async def _plan(self) -> Reload:
        running = self._running()
        if self._path is None:
            return Reload(running, (), (), {})
        return _keep_kind(running, plan_reload(running, await asyncio.to_thread(load_config, self._path)))


def _with_other(plan: Reload, name: str, change: str) -> Reload:
    """Name something that has changed, or nothing where ``change`` is empty."""
    if not change:
        return plan
    return plan._replace(changed=(*plan.changed, name), values={**plan.values, name: change})


def _say(text: str, *, always: bool) -> None:
    """Write a line for information; ``always`` also where the level in force leaves such lines out.

    What an operator has changed must be found in the log afterwards, or ``log.level`` itself would hide it.
    """
    if always:
        log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, text, (), None, extra={"always": True}))
    else:
        log.info("%s", text)


def _keep_kind(running: Config, plan: Reload) -> Reload:
    """Leave it to a restart to begin or to end encryption: the sockets that listen are of one kind."""
    server = plan.config.server
    if (server.tls_cert is None) is (running.server.tls_cert is None):
        return plan
    server = replace(server, tls_cert=running.server.tls_cert, tls_key=running.server.tls_key)
    return Reload(
        replace(plan.config, server=server),
        tuple(name for name in plan.changed if name not in _TLS),
        (*plan.need_restart, *(name for name in plan.changed if name in _TLS)),
        plan.values,
    )
