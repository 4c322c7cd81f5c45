"""What is laid out in the bundle is of the processor that it is for."""

from __future__ import annotations

import importlib.util
import struct
from types import ModuleType

import pytest

from tests.support.vectors import REPOSITORY


@pytest.fixture(scope="module")
def fetching() -> ModuleType:
    path = REPOSITORY / "packaging" / "bundle" / "fetch_wheels.py"
    spec = importlib.util.spec_from_file_location("fetch_wheels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def elf(machine: int, *, bits: int = 2) -> bytes:
    """Return the head of an extension module."""
    return b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9) + struct.pack("<HHI", 3, machine, 1) + bytes(40)


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", 62), ("arm64", 183)])
def test_modules_of_another_processor_end_the_build(fetching: ModuleType, architecture: str, machine: int) -> None:
    fetching.check_machine("a.so", elf(machine), architecture)
    for other in (elf(62 + 183 - machine), elf(40, bits=1), elf(machine, bits=1), b"", b"no ELF at all, but text"):
        with pytest.raises(SystemExit, match=f"a.so is not for {architecture}"):
            fetching.check_machine("a.so", other, architecture)
