"""The command `mcp-code-portal`, as a process that need not import the SDK first; see `command_server.py`.

It is one as users start it but for its imports. Tests of how a process begins and ends start `mcp-code-portal` itself.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

_HERE = Path(__file__).parent
_KEPT: list[object] = []
"""Resources that end with this process: the server's stdin, and the folder of its socket."""


@cache
def warm_command() -> list[str]:
    """The program and the first arguments. The first use starts the server, which needs Linux."""
    if sys.platform != "linux":
        return [str(Path(sys.executable).with_name("mcp-code-portal"))]
    folder = TemporaryDirectory()
    path = f"{folder.name}/commands"
    server = subprocess.Popen(
        [sys.executable, "-P", str(_HERE / "command_server.py"), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_HERE.parent)},
        start_new_session=True,
    )
    _KEPT.extend((folder, server))
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    return relayed(path)


def relayed(path: str) -> list[str]:
    """The program and the first arguments of a command that whoever listens at this socket runs."""
    return [sys.executable, "-I", "-S", str(_HERE / "command_relay.py"), path]
