"""The certificate and the key that systemd hands to the service as credentials (``LoadCredential=``)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from shine_node.configuration.problems import ConfigError, Origin, Problem

__all__ = ["NAMES", "PLACEHOLDER", "find_credentials", "is_credential", "lacks_credentials"]

NAMES = ("tls.crt", "tls.key")
HANDED_OVER = Path("/run/credentials")
"""Where systemd keeps what it hands over, a folder for each unit."""
PLACEHOLDER = b"none"
"""What a unit sets with ``SetCredential=`` so that it starts where there is no such file."""


def find_credentials(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the files of ``NAMES`` in ``CREDENTIALS_DIRECTORY``, by name; those that are placeholders are left out.

    Raises:
        ConfigError: there is one of the two without the other, or it cannot be read.
    """
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        return {}
    found = {name: Path(folder) / name for name in NAMES if _is_real(Path(folder) / name)}
    if len(found) == 1:
        [there] = found
        missing = NAMES[1 - NAMES.index(there)]
        text = f"holds the credential {there} without {missing}: name both in the unit, or neither"
        raise ConfigError([Problem(Origin(folder), text)])
    return found


def lacks_credentials(environ: Mapping[str, str]) -> bool:
    """Say whether the unit names a certificate, and there is but the placeholder for it."""
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    return bool(folder) and any((Path(folder) / name).exists() and not _is_real(Path(folder) / name) for name in NAMES)


def is_credential(path: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether a file is one that the service manager has handed over: a copy, made at the start of the service."""
    own = environ.get("CREDENTIALS_DIRECTORY", "")
    return path.is_relative_to(HANDED_OVER) or (bool(own) and path.is_relative_to(own))


def _is_real(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(PLACEHOLDER) + 8).strip() != PLACEHOLDER
    except FileNotFoundError:
        return False
    except OSError as error:
        text = f"cannot be read ({error.strerror}): correct LoadCredential= of the unit"
        raise ConfigError([Problem(Origin(str(path)), text)]) from None
