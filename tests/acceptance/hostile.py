"""Hostile scripts: tables of them, what must become of each, and bait that none of them may find."""

import json
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import stdio_model, write_manifest

REACHED = "reached the attacking line"
"""Printed by each script right before it attacks: without it on stdout the attack proves nothing."""

ANYTHING = "anything that happens to the script alone"
VALUE = "the value that stands beside the script"

OWN_CODES = {"script_error", "script_exit", "memory_limit", "cpu_limit", "result_limit", "result_not_json"}

GIT_SERVER = [str(Path(__file__).parent / "peers/waiting_server.py"), "git_log", "hangs", "long"]
VARIABLE = "MCP_CODE_PORTAL_BAIT"

RAW_HOST = "from wit_world.imports import host\n"
"""Past all that the guest checks: the host's own functions."""


@dataclass(frozen=True)
class Attacks:
    """Scripts that end alike: `fate` is VALUE, ANYTHING, or an error's code and the beginning of its message."""

    family: str
    fate: str
    scripts: Mapping[str, str | tuple[str, Json]]
    setup: str = ""


@dataclass(frozen=True)
class Attack:
    fate: str
    script: str
    value: Json = None


@dataclass(frozen=True)
class Bait:
    """A secret in a file and in the portal's environment, and a port with a listener."""

    folder: Path
    listener: socket.socket
    secret: str = field(default_factory=lambda: secrets.token_hex(16))

    def prelude(self, server: int) -> str:
        """The facts that scripts get, in one line: all but the secret."""
        flag, port = str(self.folder / "flag.txt"), self.listener.getsockname()[1]
        return f"FOLDER = {str(self.folder)!r}; FLAG = {flag!r}; PORT = {port}; PID = {server}\n"

    def check(self) -> None:
        """Nobody read, changed or called anything."""
        assert {path.name: path.read_text() for path in self.folder.iterdir()} == {"flag.txt": self.secret}
        with self.listener.dup() as probe, pytest.raises(BlockingIOError):
            probe.accept()


@dataclass(frozen=True)
class Arena:
    """A portal with bait around it."""

    model: Model
    bait: Bait

    async def withstands(self, attack: Attack) -> dict[str, Json]:
        """The script is reached, meets its fate, finds nothing, and the portal works as before."""
        answer = await self.model.run(self.bait.prelude(os.getpid()) + attack.script)
        assert REACHED in answer["stdout"], answer
        error: Json = answer.get("error")
        if attack.fate == ANYTHING:
            assert error is None or error["code"] in OWN_CODES, error
        elif attack.fate == VALUE:
            assert (answer["status"], answer["result"]) == ("ok", attack.value), answer
        else:
            code, _, begins = attack.fate.partition(": ")
            assert (answer["status"], error["code"]) == ("error", code), answer
            assert error["message"].startswith(begins), error
        assert self.bait.secret not in json.dumps(answer)
        self.bait.check()
        assert await self.model.result_of("await git.git_log(a=1)") == {"a": 1}
        return answer


@asynccontextmanager
async def arena(folder: Path, limits: dict[str, Json]) -> AsyncIterator[Arena]:
    """A portal under these limits, with the check of scripts off: only the sandbox and the broker hold them."""
    manifest = write_manifest(
        folder,
        {"git": {"command": sys.executable, "args": GIT_SERVER}},
        capabilities={"limits": limits},
        server={"check": "off"},
    )
    bait_folder = folder / "bait"
    bait_folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        bait = Bait(bait_folder, listener)
        (bait_folder / "flag.txt").write_text(bait.secret)
        async with stdio_model(manifest, environment={VARIABLE: bait.secret}) as model:
            yield Arena(model, bait)


def each(table: Sequence[Attacks]) -> list[object]:
    """One parameter of pytest for each script of a table."""
    parameters: list[object] = []
    for attacks in table:
        for name, row in attacks.scripts.items():
            script, value = row if isinstance(row, tuple) else (row, None)
            text = f"{attacks.setup}\nprint({REACHED!r}, flush=True)\n{script}"
            parameters.append(pytest.param(Attack(attacks.fate, text, value), id=f"{attacks.family}-{name}"))
    return parameters
