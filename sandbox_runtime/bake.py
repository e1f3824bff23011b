"""Bakes further packages into a guest component of one's own, for scripts that need more than every sandbox has."""

import importlib.util
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from struct import Struct

from pydantic import TypeAdapter, ValidationError

from sandbox_runtime.build_guest import (
    GuestBuild,
    GuestBuildError,
    PackageError,
    installed_packages,
    modules_of,
    native_files,
    normalized,
    write_wheel,
)
from sandbox_runtime.errors import BakedComponentError, BakeError, BakeToolsError

_TOOLS = ("pip", "componentize_py")
_PIP = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input")
_PIP_SECONDS = 600
_GUEST_PYTHON = "3.14"
# Wheels for any platform need no code of theirs to run while they are installed.
_PURE = ("--platform", "any", "--implementation", "py", "--abi", "none", "--python-version", _GUEST_PYTHON)
_TOLD_CHARS = 1500

_SECTION = b"mcp-code-portal"
_LENGTH = Struct("<I")
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
        """A custom section of wasm, which engines skip. It is the last of the component, and ends with its length."""
        content = _BAKED.dump_json(self)
        payload = bytes([len(_SECTION)]) + _SECTION + content + _LENGTH.pack(len(content))
        return b"\0" + _leb128(len(payload)) + payload

    @classmethod
    def read(cls, component: Path) -> "Baked | None":
        """What the component says, or None if it does not end with a section that was written here."""
        with component.open("rb") as file:
            file.seek(max(component.stat().st_size - _MAX_RECORD_BYTES, 0))
            end = file.read()
        if len(end) < _LENGTH.size:
            return None
        start = len(end) - _LENGTH.size - _LENGTH.unpack_from(end, len(end) - _LENGTH.size)[0]
        if start < len(_SECTION) or end[start - len(_SECTION) : start] != _SECTION:
            return None
        try:
            return _BAKED.validate_json(end[start : -_LENGTH.size])
        except ValidationError:
            return None


_BAKED = TypeAdapter(Baked)


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


def bake(requirements: Sequence[str], target: Path, progress: Callable[[str], None]) -> Baked:
    """Write a component to `target` that holds what every sandbox has, the packages of `requirements`, and theirs.

    A requirement is what pip takes: a name, perhaps with versions, or the path of a wheel. pip finds it where it is
    configured to. Takes half a minute, and needs this package's extra `bake`.

    Raises:
        BakeError: A package is not found or has native code, or the component cannot be built.
    """
    for tool in _TOOLS:
        if importlib.util.find_spec(tool) is None:
            raise BakeToolsError(f"{tool} is not installed")
    try:
        common = installed_packages()
    except PackageError as error:
        raise BakeToolsError(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        progress(f"looking for {', '.join(requirements)} and what they need")
        added = resolve(requirements, common, Path(folder))
        build = GuestBuild(Path(__file__).resolve().parent)
        baked = Baked(
            tuple(requirements),
            build.fingerprint(),
            tuple(sorted((package.name, package.version) for package in added)),
            tuple(sorted({module for package in added for module in modules_of(package)})),
        )
        progress(f"building the component with {baked.listed()} (about 20 s)")
        try:
            build.build_with([*common, *added], target, baked.section())
        except GuestBuildError as error:
            raise BakeError(str(error)) from error
    return baked


def resolve(requirements: Sequence[str], common: Sequence[Distribution], folder: Path) -> list[Distribution]:
    """What `requirements` are and need besides the packages of `common`, whose versions are given.

    Raises:
        BakeError: Something is not found, fits nothing, or is not pure Python.
    """
    # Some of `common` are on no index as pure wheels, so pip is shown them here.
    wheels, constraints, target = folder / "wheels", folder / "constraints.txt", folder / "packages"
    wheels.mkdir()
    for package in common:
        write_wheel(package, wheels)
    constraints.write_text("".join(f"{package.name}=={package.version}\n" for package in common))
    told = _pip_error(
        *("--target", str(target), "--no-compile", *_PURE),
        *("--find-links", str(wheels), "--constraint", str(constraints), "--", *requirements),
    )
    if told:
        raise BakeError(
            "pip could not find the packages. Only wheels of pure Python can be baked in, and the versions of what "
            f"every sandbox has are fixed. pip said:\n{told}"
        )
    given = {normalized(package.name) for package in common}
    found = [
        package for package in distributions(path=[str(target)]) if normalized(package.name) not in given
    ]
    for package in found:
        if native := native_files(package):
            what = f"{package.name} {package.version}, {native[0]},"
            raise BakeError(f"{what} has native code, and only pure Python runs in the sandbox")
    return found


def _pip_error(*options: str) -> str:
    """Install; the end of what pip says if it fails."""
    try:
        done = subprocess.run(
            [*_PIP, "install", "--progress-bar", "off", "--only-binary", ":all:", *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing in {_PIP_SECONDS} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("WARNING:")]
    return "\n".join(lines)[-_TOLD_CHARS:].strip() if done.returncode else ""


def _leb128(value: int) -> bytes:
    """A number, as wasm writes it."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
