"""What is not well in a node, by its readings, in words that say what to do; pure."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from shine_node.peers.snapshot import PoolSnapshot

__all__ = ["StoreReading", "peer_warnings", "queue_warnings", "store_warnings"]

MIB = 2**20
NEARLY_FULL = 0.8
LEAST_FREE_BYTES = 256 * MIB
NAMES_SHOWN = 5


class StoreReading(NamedTuple):
    """The store at one moment, sizes in bytes.

    ``used_bytes`` of ``map_bytes`` are taken by rows, ``disk_free_bytes`` are left to this user on its disk, and
    ``trouble`` is why it cannot be written or looked at, if so; then ``disk_free_bytes`` may be ``None``.
    """

    path: Path
    file_bytes: int
    used_bytes: int
    map_bytes: int
    disk_free_bytes: int | None
    trouble: str
    users: int
    messages: int
    open_deliveries: int

    @property
    def used_share(self) -> float:
        """How much of the map is taken, 0 … 1."""
        return self.used_bytes / self.map_bytes


def store_warnings(store: StoreReading) -> dict[str, str]:
    """Return what is not well with the store, by what it is about: ``map``, ``disk``, ``trouble``."""
    warnings: dict[str, str] = {}
    if store.used_share >= NEARLY_FULL:
        warnings["map"] = (
            f"the store has taken {store.used_share:.0%} of its {store.map_bytes // MIB} MiB: raise storage.mapSizeMiB"
            " and restart, or new messages will be refused when it is full"
        )
    if store.disk_free_bytes is not None and store.disk_free_bytes < LEAST_FREE_BYTES:
        warnings["disk"] = (
            f"{store.disk_free_bytes // MIB} MiB are free on the disk of {store.path.parent}: make room, or new"
            " messages will be refused when it is full"
        )
    if store.trouble:
        warnings["trouble"] = store.trouble
    return warnings


def queue_warnings(*, crypto: int, crypto_bound: int, writer: int, writer_bound: int) -> list[str]:
    """Return which queues are nearly at their bounds, beyond which requests are refused."""
    warnings = []
    if crypto >= NEARLY_FULL * crypto_bound:
        warnings.append(
            f"{crypto} signatures wait to be checked, at {crypto_bound} requests are refused: raise crypto.threads if"
            " there are processors left, or lower limits.requestsPerSecond"
        )
    if writer >= NEARLY_FULL * writer_bound:
        warnings.append(
            f"{writer} writes wait for the disk, at {writer_bound} requests are refused: the disk of server.dataDir is"
            " too slow for so many, or about to fail"
        )
    return warnings


def peer_warnings(peers: PoolSnapshot) -> list[str]:
    """Return one line about the links that are not as they should be, none if there are none."""
    names = [peer.server_login for peer in peers.peers if not peer.well]
    if not names:
        return []
    shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    return [f"{len(names)} of {len(peers.peers)} links are not connected and tried again: {shown}"]
