"""What is not well in a node, by its readings, in words that say what to do; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from shine_node.peers.snapshot import PeerSnapshot, PoolSnapshot

__all__ = [
    "CREDENTIAL_ADVICE",
    "DAY_MS",
    "LEAST_CERTIFICATE_DAYS",
    "LEAST_FREE_MIB",
    "NO_CREDENTIAL",
    "StoreReading",
    "certificate_expired",
    "certificate_warnings",
    "clock_warnings",
    "comfortable_mib",
    "peer_notes",
    "peer_warnings",
    "plain_warnings",
    "queue_warnings",
    "store_warnings",
]

MIB = 2**20
DAY_MS = 86_400_000
LEAST_CERTIFICATE_DAYS = 21
"""A certificate that ends sooner should have been renewed: authorities' own programs do it a month before."""
CREDENTIAL_ADVICE = "systemd hands it over at the start alone, so then: systemctl restart shine-node"
NO_CREDENTIAL = (
    "the certificate that the unit names (LoadCredential=tls.crt, tls.key) was not there at the start, so this server"
    " speaks without encryption: correct the paths, and systemctl restart shine-node"
)
NEARLY_FULL = 0.8
LEAST_FREE_MIB = 256
"""Where there is no rule for what must stay free."""
NAMES_SHOWN = 5


class StoreReading(NamedTuple):
    """The store at one moment, sizes in bytes.

    ``used_bytes`` of ``map_bytes`` are taken by rows, ``disk_free_bytes`` are left to this user on its disk, and
    ``trouble`` is why it cannot be written or looked at, if so; then ``disk_free_bytes`` may be ``None``. ``refusing``
    says that its disk has too little room already, of which others tell; ``comfortable_mib`` is when that is near.
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
    refusing: bool = False
    comfortable_mib: int = LEAST_FREE_MIB

    @property
    def used_share(self) -> float:
        """How much of the map is taken, 0 … 1."""
        return self.used_bytes / self.map_bytes


def comfortable_mib(min_free_mib: int) -> int:
    """Return with less than how many MiB on its disk a store soon takes no messages, by ``storage.minFreeMiB``."""
    return 2 * min_free_mib or LEAST_FREE_MIB


def store_warnings(store: StoreReading) -> dict[str, str]:
    """Return what is not well with the store, by what it is about: ``map``, ``disk``, ``trouble``."""
    warnings: dict[str, str] = {}
    if store.used_share >= NEARLY_FULL:
        warnings["map"] = (
            f"the store has taken {store.used_share:.0%} of its {store.map_bytes // MIB} MiB: raise storage.mapSizeMiB"
            " and restart, or new messages will be refused when it is full"
        )
    if not store.refusing and store.disk_free_bytes is not None and store.disk_free_bytes < store.comfortable_mib * MIB:
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


def certificate_warnings(not_after_ms: int | None, now_ms: int, *, handed_over: bool = False) -> list[str]:
    """Return what is to be done about a certificate that ends soon, or has ended; ``None`` is for no certificate.

    Args:
        handed_over: whether it is a credential of systemd's, a copy that is made at the start of the service.
    """
    if not_after_ms is None:
        return []
    days = (not_after_ms - now_ms) // DAY_MS
    if days >= LEAST_CERTIFICATE_DAYS:
        return []
    then = CREDENTIAL_ADVICE if handed_over else "its files are read again by themselves"
    if certificate_expired(not_after_ms, now_ms):
        return [f"the certificate has expired, nobody can connect: renew it; {then}"]
    return [f"the certificate expires in {days} days: renew it; {then}"]


def plain_warnings(url: str, exposed: Sequence[str], *, missing: bool) -> list[str]:
    """Return what is to be done about a server that has no certificate and should have one.

    Args:
        url: ``server.url``.
        exposed: where it listens without encryption and others can reach it.
        missing: whether the unit names a certificate as a credential, of which there was none at the start.
    """
    if missing:
        return [NO_CREDENTIAL]
    if url.startswith("wss://") and exposed:
        return [
            f"server.url is {url}, and this server speaks without encryption at {', '.join(exposed)}, where others can"
            " reach it: set server.tlsCert and server.tlsKey, or listen on 127.0.0.1 with a proxy in front of it"
        ]
    return []


def certificate_expired(not_after_ms: int | None, now_ms: int) -> bool:
    """Say whether a certificate has ended; ``None`` is for no certificate."""
    return not_after_ms is not None and not_after_ms <= now_ms


def clock_warnings(synchronised: bool | None) -> list[str]:
    """Return what is to be done where nothing keeps the clock right; ``None`` is for what cannot be told."""
    if synchronised is not False:
        return []
    return ["nothing keeps the clock of this machine right: timedatectl set-ntp true, or install chrony"]


def peer_warnings(peers: PoolSnapshot, configured: Collection[str]) -> list[str]:
    """Return one line about the links to configured peers that are not as they should be, none if there are none.

    Args:
        configured: the logins of ``[[sync_servers]]``, in lower case.
    """
    return _not_well([peer for peer in peers.peers if peer.server_login.lower() in configured], "configured peers")


def peer_notes(peers: PoolSnapshot, configured: Collection[str]) -> list[str]:
    """Return one line about other links, to servers that only users' records name: they are not the operator's."""
    others = [peer for peer in peers.peers if peer.server_login.lower() not in configured]
    return _not_well(others, "servers of users")


def _not_well(peers: Sequence[PeerSnapshot], whose: str) -> list[str]:
    names = [peer.server_login for peer in peers if not peer.well]
    if not names:
        return []
    shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    return [f"{len(names)} of {len(peers)} {whose} cannot be reached and are tried again: {shown}"]
