"""A copy of the source, as a stranger would get it, and the commands that build and install it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
COMPONENTS = [f"sandbox_runtime/{name}.{kind}" for name in ("guest", "js") for kind in ("wasm", "stamp")]
COMMAND_SECONDS = 300


def copy_source(target: Path) -> Path:
    """Copy every file that belongs to the source, and no other. `target` must not exist yet."""
    listed = run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT
    )
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)
    return target


def bring_components(target: Path) -> None:
    """Put the components that scripts/setup built, and their stamps, into another tree.

    The build trusts them only when the stamp fits the sources there, so this also proves that they are all there.
    """
    for name in COMPONENTS:
        shutil.copyfile(ROOT / name, target / name)


def make_environment(folder: Path, *, with_pip: bool = False) -> Path:
    """An empty virtual environment; returns its Python."""
    seed = [] if with_pip else ["--without-pip"]
    run([sys.executable, "-m", "venv", *seed, str(folder)], folder.parent)
    return folder / "bin/python"


def uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def run(command: Sequence[str], cwd: Path, variables: Mapping[str, str] = os.environ) -> str:
    """The command's stdout; it must succeed."""
    # A PYTHONPATH would let it find this source tree instead of what it has installed.
    environment = {name: value for name, value in variables.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
