"""What systemd lets the packaged service do: its user, where it may write, and whether it may listen on low ports."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

from shine_node.cli.common import DEFAULT_CONFIG

__all__ = ["Unit", "parse_unit", "read_unit", "unit_of", "why_not_written", "without_links"]

SERVICE = "shine-node.service"
SECONDS = 5.0
STATE = Path("/var/lib")
FOLDERS = {"RuntimeDirectory": Path("/run"), "StateDirectory": STATE, "CacheDirectory": Path("/var/cache")}
PROPERTIES = (
    "LoadState",
    "User",
    "Group",
    "AmbientCapabilities",
    "PrivateUsers",
    "ProtectSystem",
    "ProtectHome",
    "ReadWritePaths",
    *FOLDERS,
)
HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
HIDES = ("yes", "tmpfs")
SYSTEM = {
    "yes": (Path("/usr"), Path("/boot"), Path("/efi")),
    "full": (Path("/usr"), Path("/boot"), Path("/efi"), Path("/etc")),
    "strict": (Path("/"),),
}


class Unit(NamedTuple):
    """The service as systemd has it, with all drop-ins.

    ``low_ports`` says whether it may listen on ports below 1024, ``system`` and ``home`` are ``ProtectSystem=`` and
    ``ProtectHome=``, ``made`` are folders that systemd makes for it, ``writable`` those with ``ReadWritePaths=``.
    """

    user: str
    group: str
    low_ports: bool
    system: str
    home: str
    made: tuple[Path, ...]
    writable: tuple[Path, ...]


def unit_of(config_path: Path) -> Unit | None:
    """Return the unit of the packaged service where a configuration is that of this service, and systemd knows it."""
    return read_unit() if config_path == DEFAULT_CONFIG else None


def read_unit() -> Unit | None:
    """Ask systemd for the unit; ``None`` where there is none, or nobody to ask within ``SECONDS``."""
    try:
        shown = subprocess.run(  # noqa: S603 - of constants
            ["systemctl", "show", f"--property={','.join(PROPERTIES)}", SERVICE],  # noqa: S607 - where PATH has it
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_unit(shown.stdout.decode(errors="surrogateescape"))


def parse_unit(shown: str) -> Unit | None:
    """Read what ``systemctl show`` prints, ``None`` if there is no such unit; pure."""
    values = {name: value for name, _, value in (line.partition("=") for line in shown.splitlines())}
    if values.get("LoadState") != "loaded":
        return None
    capabilities = values.get("AmbientCapabilities", "").lower().split()
    folders = (base / name for key, base in FOLDERS.items() for name in _words(values.get(key, "")))
    return Unit(
        user=values.get("User", ""),
        group=values.get("Group", ""),
        # Of a user namespace of its own the service has rights there alone, and the network is outside of it.
        low_ports="cap_net_bind_service" in capabilities and values.get("PrivateUsers") != "yes",
        system=values.get("ProtectSystem", "no"),
        home=values.get("ProtectHome", "no"),
        made=tuple(folders),
        writable=tuple(Path(word.lstrip("-+")) for word in _words(values.get("ReadWritePaths", ""))),
    )


def without_links(unit: Unit) -> Unit:
    """Return the unit with folders as they are found without symbolic links, which systemd follows too."""

    def real(folders: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(Path(os.path.realpath(folder)) for folder in folders)

    return unit._replace(made=real(unit.made), writable=real(unit.writable))


def why_not_written(unit: Unit, folder: Path) -> str:
    """Return the setting by which a unit keeps its service from writing below a folder, empty if none does; pure."""
    if unit.home in HIDES and _below(folder, HOMES):
        return "ProtectHome"
    if _below(folder, SYSTEM.get(unit.system, ())) and not _below(folder, (*unit.made, *unit.writable)):
        return "ProtectSystem"
    return ""


def _below(folder: Path, places: tuple[Path, ...]) -> bool:
    return any(folder.is_relative_to(place) for place in places)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a lone quotation mark
        return text.split()
