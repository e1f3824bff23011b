"""Which process a stdio upstream is: command, environment, working directory."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manifests.upstream_sections import StdioUpstream
from upstreams.errors import UpstreamUnavailableError
from upstreams.open_files import AT_START

INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR")
"""What every child gets of the portal's environment, when set; nothing else."""

_INSTALL_HINTS: Final = {
    "uvx": "install uv (https://docs.astral.sh/uv)",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "npx": "install Node.js",
    "node": "install Node.js",
    "docker": "install Docker",
}

_SHORT_PATH: Final = "programs started from a desktop have a shorter PATH than those started from a shell"


@dataclass(frozen=True)
class StdioChild:
    """A process to start: its supervisor's command line, exact environment and folder."""

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path

    @classmethod
    def of(cls, spec: StdioUpstream, folder: Path, environ: Mapping[str, str]) -> "StdioChild":
        """Find the command the way a shell in the child's folder and environment would.

        Raises:
            UpstreamUnavailableError: There is no such command or folder.
        """
        environment = {name: environ[name] for name in INHERITED if name in environ} | dict(spec.env)
        cwd = os.path.expanduser(spec.cwd or "")
        working_folder = folder / cwd
        if not working_folder.is_dir():
            where = "" if os.path.isabs(cwd) else " in the manifest's folder"
            raise UpstreamUnavailableError(f"its working directory {spec.cwd!r} does not exist{where}")
        executable = _find(spec.command, environment, working_folder)
        supervisor = Path(__file__).with_name("child_supervisor.py")
        # The names travel beside the values: the supervisor passes on exactly these.
        leash = (sys.executable, "-I", "-S", str(supervisor), str(os.getpid()), str(AT_START))
        return cls((*leash, "=".join(environment), executable, *spec.args), environment, working_folder)


def _find(command: str, environment: Mapping[str, str], folder: Path) -> str:
    if os.sep in command:
        path = folder / os.path.expanduser(command)
        if not path.exists():
            raise UpstreamUnavailableError(f"command {command!r} does not exist")
        if not os.access(path, os.X_OK) or path.is_dir():
            raise UpstreamUnavailableError(f"command {command!r} is not executable")
        return str(path)
    # Relative entries of PATH are the child's, so they count from its folder.
    search = os.pathsep.join(
        str(folder / entry) for entry in environment.get("PATH", os.defpath).split(os.pathsep)
    )
    found = shutil.which(command, path=search)
    if found is None:
        hint = f"{_INSTALL_HINTS.get(command, 'install it')}, or give its full path"
        raise UpstreamUnavailableError(f"command {command!r} was not found on PATH; {hint}: {_SHORT_PATH}")
    return found
