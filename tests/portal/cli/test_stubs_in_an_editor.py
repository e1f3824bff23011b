"""A script written against `stubs --out DIR`: type checkers take it as it stands, and `run` runs it."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

from manifests.json_value import Json
from tests.portal.commands import PortalCommand
from tests.portal.peers import raw, schema, write_manifest

SCRIPT = """\
import asyncio
from typing import TYPE_CHECKING

import portal
import store
from portal import ToolError
from tools import store as again
from tools.store import echo

if TYPE_CHECKING:
    from tools.store import EchoResult


async def main() -> str:
    found: EchoResult = await echo(name="a", labels=["b"], class_=1)
    try:
        await again.echo(name="c", labels=None)
    except ToolError as error:
        portal.emit({"type": "text", "text": error.code})
    labels: list[str] = found["labels"]
    return f"{found['name']} {labels} {(await store.echo(name='d'))['name']}"


print(asyncio.run(main()))
"""
WRONG = """\
from tools import store


async def main() -> None:
    await store.echo()
    await store.echo(name=3)
    await store.echo(name="a", lables=[])
    (await store.echo(name="a"))["nmae"]
    await store.ecko()
"""


TEXTS: Json = {"type": "array", "items": {"type": "string"}}
FIELDS: Json = {"name": {"type": "string"}, "labels": TEXTS}
ECHO: Json = {
    "name": "echo",
    "inputSchema": {
        **schema("name", **FIELDS, **{"class": {"type": "integer"}}),
        "additionalProperties": False,
    },
    "outputSchema": schema("name", "labels", **FIELDS),
}


def errors(folder: Path, program: str, *arguments: str) -> set[tuple[str, int]]:
    """The files and lines in which a type checker finds errors."""
    command = [str(Path(sysconfig.get_path("scripts"), program)), *arguments]
    environment = {**os.environ, "MYPYPATH": str(folder / "typings")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert "rror" in done.stdout or done.returncode == 0, done.stderr
    found = [line.split(":") for line in done.stdout.splitlines() if ": error" in line]
    return {(file, int(line)) for file, line, *_ in found}


def test_script_against_the_folder_is_right_for_type_checkers_and_runs(
    tmp_path: Path, portal: PortalCommand
) -> None:
    write_manifest(tmp_path, {"store": raw(tools=[ECHO])})
    assert portal("stubs", "--out", "typings", cwd=tmp_path).returncode == 0
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(WRONG)
    mypy = ("mypy", "--strict", "--cache-dir", "/dev/null")
    ty = ("ty", "check", "--output-format", "concise", "--no-progress", "--extra-search-path", "typings")
    wrong = {("wrong.py", line) for line in range(5, 10)}
    assert errors(tmp_path, *mypy, "script.py", "wrong.py") == wrong
    assert errors(tmp_path, *ty, "script.py", "wrong.py") == wrong
    answer = json.loads(portal("run", "--json", "script.py", cwd=tmp_path).stdout)
    assert (answer["status"], [row["state"] for row in answer["calls"]]) == ("ok", ["done"] * 3), answer
