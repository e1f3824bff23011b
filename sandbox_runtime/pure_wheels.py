"""Packages of pure Python, as pip finds them, laid out in a folder."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sandbox_runtime.errors import BakeError
from sandbox_runtime.guest_packages import native_files, normalized, write_wheel

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
