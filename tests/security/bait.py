"""Things of the host that an attack would like to have: it must not find, change or reach any of them."""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "MCP_CODE_PORTAL_BAIT"


@dataclass
class Bait:
    """A secret in a file and in the environment, a folder, and a port that someone listens on."""

    folder: Path
    listener: socket.socket
    secret: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def flag(self) -> Path:
        return self.folder / "flag.txt"

    @property
    def prelude(self) -> str:
        """What an attack knows of it. One line, without the secret."""
        port = self.listener.getsockname()[1]
        return (
            f"FOLDER = {str(self.folder)!r}; FLAG = {str(self.flag)!r}; PORT = {port}; PID = {os.getpid()}\n"
        )

    def check(self) -> None:
        """Nobody was here."""
        assert {path.name: path.read_text() for path in self.folder.iterdir()} == {"flag.txt": self.secret}
        with self.listener.dup() as probe:
            try:
                probe.accept()
            except BlockingIOError:
                return
        raise AssertionError("somebody connected to the port")


@contextmanager
def laid(folder: Path) -> Iterator[Bait]:
    """Lay bait in an empty folder, in this process's environment, and on a port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        bait = Bait(folder, listener)
        bait.flag.write_text(bait.secret)
        os.environ[VARIABLE] = bait.secret
        try:
            yield bait
        finally:
            del os.environ[VARIABLE]
