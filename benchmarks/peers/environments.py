"""Environments of the peers, in .cache: each has its own, at the versions named there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.system import CACHE, CannotError

INSTALL_SECONDS = 300


def python_environment(name: str, requirement: str, *, at_least: str = "3.11") -> Path:
    """A virtual environment with the requirement; gives its folder of commands.

    Raises:
        CannotError: It cannot be made here.
    """
    folder = CACHE / name / "venv"
    if not _is_ready(folder, requirement):
        uv = [sys.executable, "-m", "uv"]
        python = sys.executable if at_least == "3.11" else f">={at_least}"
        _install(name, requirement, [*uv, "venv", "-q", "--clear", "--python", python, str(folder)])
        _install(name, requirement, [*uv, "pip", "install", "-q", "-p", str(folder), requirement])
        _mark_ready(folder, requirement)
    return folder / "bin"


def node_environment(name: str, requirement: str) -> Path:
    """A folder with the npm package; gives its folder of commands.

    Raises:
        CannotError: It cannot be made here.
    """
    folder = CACHE / name / "npm"
    if not _is_ready(folder, requirement):
        if shutil.which("npm") is None:
            raise CannotError("it needs Node.js, which is not here")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}\n')
        _install(name, requirement, ["npm", "install", "--no-audit", "--no-fund", requirement], cwd=folder)
        _mark_ready(folder, requirement)
    return folder / "node_modules" / ".bin"


def _install(name: str, requirement: str, command: list[str], cwd: Path | None = None) -> None:
    print(f"{name}: installing {requirement} ...", file=sys.stderr)
    try:
        done = subprocess.run(
            command, cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise CannotError(f"{requirement} was not installed within {INSTALL_SECONDS} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CannotError(f"{requirement} could not be installed: {' '.join(lines[-3:])[-300:]}")


def _environment() -> dict[str, str]:
    """With the Pythons of pyenv in reach, of which its own shims show one only."""
    pythons = sorted(Path.home().glob(".pyenv/versions/3.*/bin"), reverse=True)
    return dict(os.environ) | {"PATH": os.pathsep.join([os.environ["PATH"], *map(str, pythons)])}


def _is_ready(folder: Path, requirement: str) -> bool:
    stamp = folder / "installed"
    return stamp.exists() and stamp.read_text() == requirement


def _mark_ready(folder: Path, requirement: str) -> None:
    (folder / "installed").write_text(requirement)
