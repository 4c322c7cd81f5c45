"""The certificate and the key that systemd hands to the service as credentials (``LoadCredential=``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shine_node.configuration.problems import ConfigError, Origin, Problem

__all__ = ["NAMES", "PLACEHOLDER", "find_credentials"]

NAMES = ("tls.crt", "tls.key")
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


def _is_real(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(PLACEHOLDER) + 8).strip() != PLACEHOLDER
    except FileNotFoundError:
        return False
    except OSError as error:
        text = f"cannot be read ({error.strerror}): correct LoadCredential= of the unit"
        raise ConfigError([Problem(Origin(str(path)), text)]) from None
