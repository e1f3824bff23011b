"""A Postgres server of this machine's, for tests: in a folder and on a port of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg

from tests.ports import closed_port

_NUMBERS = count(1)
_SETTINGS = (
    "fsync = off\nunix_socket_directories = ''\nlisten_addresses = '127.0.0.1'\nmax_connections = 200\n"
)


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    folder: Path
    port: int

    def new_database(self, encoding: str = "UTF8") -> str:
        """Create an empty database. Returns its URL."""
        name = f"runs_{next(_NUMBERS)}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"  # type: ignore[arg-type]
            )
        return self._url(name)

    def restart(self, mode: str = "fast") -> None:
        """Stop and start it. "immediate" is like a crash."""
        self.stop(mode)
        self.start()

    def stop(self, mode: str = "fast") -> None:
        self._control("stop", "-m", mode)

    def start(self) -> None:
        self._control("start", "-l", str(self.folder / "log"))

    def _control(self, *arguments: str) -> None:
        _run("pg_ctl", "-D", str(self.folder / "data"), "-w", *arguments)

    def _url(self, name: str) -> str:
        return f"postgres://portal@127.0.0.1:{self.port}/{name}"


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A new server, which ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    port = closed_port()
    server = Postgres(folder, port)
    try:
        _run("initdb", "-D", str(folder / "data"), "-U", "portal", "--no-sync", "--auth=trust")
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write(f"{_SETTINGS}port = {port}\n")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(program: str, *arguments: str) -> None:
    # Postgres does not run as root. Its log must not keep this pipe open.
    user = "postgres" if os.getuid() == 0 else None
    command = [_program(program), *arguments]
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(command, user=user, cwd="/", stdout=said, stderr=said, check=False)
        said.seek(0)
        assert done.returncode == 0, said.read()


def _program(name: str) -> str:
    """Debian has the server's programs in a folder of their version, and not on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path is not None, f"{name} is missing: run scripts/servers --all"
    return path
