"""The data of the real servers, and how the tests read it without the portal."""

import socket
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.acceptance.model import Json
from tests.ports import closed_port

COMMAND_SECONDS = 30


def git_output(repository: Path, *args: str) -> str:
    """Return the output of `git ARGS` in the repository."""
    done = subprocess.run(
        ["git", "-C", str(repository), *args],
        check=True,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    """A repository with one commit and an author of its own."""
    folder.mkdir()
    git_output(folder, "init", "--quiet", "--initial-branch", "main")
    git_output(folder, "config", "user.name", "Test")
    git_output(folder, "config", "user.email", "test@example.invalid")
    (folder / "README.md").write_text("# Notes\n")
    git_output(folder, "add", "README.md")
    git_output(folder, "commit", "--quiet", "--message", "Begin")
    return folder


def make_database(path: Path) -> Path:
    """A shop with two orders."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table orders (id integer primary key, item text, price real)")
        database.executemany("insert into orders (item, price) values (?, ?)", [("tea", 4.5), ("pot", 21.0)])
        database.commit()
    return path


def rows(database: Path, query: str) -> Sequence[tuple[Json, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """A Redis server on a free port, which it yields once the server says that it is ready."""
    port = closed_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "Ready to accept connections" in line:
                break
        else:
            raise AssertionError("redis-server ended: " + "".join(said))
        yield port
    finally:
        process.terminate()
        process.wait(COMMAND_SECONDS)


def redis_answer(port: int, *command: str) -> str:
    """The raw answer of one Redis command, such as `$3\\r\\ntea\\r\\n`."""
    words = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in command)
    with socket.create_connection(("127.0.0.1", port), timeout=COMMAND_SECONDS) as connection:
        connection.sendall(f"*{len(command)}\r\n{words}".encode())
        return connection.recv(65536).decode()
