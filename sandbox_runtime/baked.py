"""What a baked component says about itself, in a section that the engine skips."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from sandbox_runtime.build_guest import GuestBuild
from sandbox_runtime.errors import BakedComponentError

_SECTION = b"mcp-code-portal"
_HEADER_BYTES = 8
_MAX_RECORD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Baked:
    """What was baked: as it was asked for, with what version of the guest, and what came of it.

    `packages` are names and versions besides those that every component has, `modules` what scripts import.
    """

    requirements: tuple[str, ...]
    fingerprint: str
    packages: tuple[tuple[str, str], ...]
    modules: tuple[str, ...]

    def listed(self) -> str:
        """Its packages with their versions, for people."""
        return ", ".join(f"{name} {version}" for name, version in self.packages)

    def section(self) -> bytes:
        """The custom section that holds this, to be appended to a component."""
        content = json.dumps(asdict(self)).encode()
        payload = _number(len(_SECTION)) + _SECTION + content
        return b"\0" + _number(len(payload)) + payload

    @classmethod
    def read(cls, component: Path) -> "Baked | None":
        """What the component says, or None if it says nothing that was written here."""
        try:
            with component.open("rb") as file:
                fields = next((json.loads(text) for text in _records(file)), None)
            if fields is None:
                return None
            return cls(
                tuple(map(str, fields["requirements"])),
                str(fields["fingerprint"]),
                tuple((str(name), str(version)) for name, version in fields["packages"]),
                tuple(map(str, fields["modules"])),
            )
        except (ValueError, LookupError, TypeError):
            return None


def check_baked(component: Path) -> Baked:
    """What a component that an operator chose holds, if this version of the portal can run it.

    Raises:
        BakedComponentError: It is missing, was not baked, or was baked by another version.
    """
    if not component.is_file():
        raise BakedComponentError(f"the component {component.name} is missing")
    baked = Baked.read(component)
    if baked is None:
        raise BakedComponentError(f"{component.name} was not made by `mcp-code-portal bake`")
    if baked.fingerprint != GuestBuild(Path(__file__).resolve().parent).fingerprint():
        packages = shlex.join(baked.requirements)
        raise BakedComponentError(
            f"{component.name} was baked by another version of mcp-code-portal: make it again with "
            f"`mcp-code-portal bake {packages} --out {component.name}`"
        )
    return baked


def _records(file: BinaryIO) -> Iterator[bytes]:
    """The contents of our sections."""
    file.seek(_HEADER_BYTES)
    while kind := file.read(1):
        end = _read_number(file) + file.tell()
        if kind == b"\0":
            name = file.read(_read_number(file))
            if name == _SECTION and end - file.tell() <= _MAX_RECORD_BYTES:
                yield file.read(end - file.tell())
        file.seek(end)


def _number(value: int) -> bytes:
    """LEB128, as wasm writes numbers."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _read_number(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 35, 7):
        (byte,) = file.read(1)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError("a number of more than 32 bits")
