"""Bakes further packages into a guest component of one's own, for scripts that need more than every sandbox has."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

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


_PIP = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input")
_PIP_SECONDS = 600
_GUEST_PYTHON = "3.14"
# Wheels for any platform need no code of theirs to run while they are installed.
_PURE = ("--platform", "any", "--implementation", "py", "--abi", "none", "--python-version", _GUEST_PYTHON)

_UNSUPPORTED = re.compile(r"(\S+\.whl) is not a supported wheel")
_MISSING = re.compile(r"No matching distribution found for (.+?)(?: \(from|$)", re.MULTILINE)
_UNAVAILABLE = re.compile(r"no matching distributions available for your environment:\n((?: +\S+\n)+)")
_TOLD_CHARS = 1500


def resolve(requirements: Sequence[str], common: Sequence[Distribution], folder: Path) -> list[Distribution]:
    """What `requirements` are and need besides the packages of `common`, whose versions are given.

    Raises:
        BakeError: Something is not found, fits nothing, or is not pure Python; the message names it.
    """
    # Some of `common` are on no index as pure wheels, so pip is shown them here.
    wheels, constraints, target = folder / "wheels", folder / "constraints.txt", folder / "packages"
    wheels.mkdir()
    for package in common:
        write_wheel(package, wheels)
    constraints.write_text("".join(f"{package.name}=={package.version}\n" for package in common))
    options = ("--target", str(target), "--no-compile", *_PURE)
    done = _install(
        *options, "--find-links", str(wheels), "--constraint", str(constraints), "--", *requirements
    )
    if done.returncode != 0:
        raise BakeError(_explained(done.stdout + done.stderr, common))
    given = {normalized(package.name) for package in common}
    found = [
        package for package in distributions(path=[str(target)]) if normalized(package.name) not in given
    ]
    for package in found:
        if native := native_files(package):
            raise BakeError(_native(f"{package.name} {package.version}, {native[0]},"))
    return found


def _install(*options: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [*_PIP, "install", "--progress-bar", "off", "--only-binary", ":all:", *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BakeError(f"pip found no answer in {_PIP_SECONDS} s") from None


def _explained(told: str, common: Sequence[Distribution]) -> str:
    """What pip means, in terms of the sandbox."""
    if unsupported := _UNSUPPORTED.search(told):
        return _native(os.path.basename(unsupported[1]))
    missing = _MISSING.findall(told)
    if unavailable := _UNAVAILABLE.search(told):
        missing += unavailable[1].split()
    versions = {normalized(package.name): package.version for package in common}
    for requirement in missing:
        name = normalized(re.split(r"[^\w.-]", requirement)[0])
        if name in versions:
            return f"every sandbox has {name} {versions[name]}: another version of it cannot be baked in"
        if wheel := _wheel_of(requirement):
            return _native(wheel)
    lines = [line for line in told.splitlines() if not line.startswith("WARNING:")]
    return "pip could not find the packages:\n" + "\n".join(lines)[-_TOLD_CHARS:].strip()


def _wheel_of(requirement: str) -> str | None:
    """The wheel that this machine's own Python would take."""
    done = _install(
        "--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-", "--", requirement
    )
    if done.returncode != 0:
        return None
    url: str = json.loads(done.stdout)["install"][0]["download_info"]["url"]
    return os.path.basename(unquote(urlsplit(url).path))


def _native(what: str) -> str:
    return f"{what} has native code, and only pure Python runs in the sandbox"


_TOOLS = ("pip", "componentize_py")


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
