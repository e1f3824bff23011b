"""What a session took hold of in one run does not outlast what its next run is granted, nor reach beyond it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox_runtime.sandbox import Session
from tests.sandbox_runtime.fetching import Server, granting
from tests.sandbox_runtime.granted_files import granted
from tests.sandbox_runtime.running import EchoPort, Runner
from tests.security.hostile import RAW_HOST

pytestmark = pytest.mark.anyio

HOLD = """
import os, sqlite3
open("kept", "w").write("of the first")
file, reading, appending = open("kept", "r+"), open("kept"), open("log", "a")
raw, number, folder = open("kept", "rb+", buffering=0), os.open("kept", os.O_RDWR), os.scandir(".")
database = sqlite3.connect("f.db")
database.execute("create table t(x)")
database.commit()
made, stat, listing = open, os.stat, os.listdir
"""
# Each is tried in a run that is granted nothing, and in one that is granted another folder.
USES = {
    "write and flush": 'file.write("pwned")\nfile.flush()',
    "add": 'appending.write("pwned")\nappending.flush()',
    "write raw": 'raw.write(b"pwned")\nraw.flush()',
    "write by number": 'os.write(number, b"pwned")\nos.fsync(number)',
    "commit": 'database.execute("insert into t values (1)")\ndatabase.commit()',
    "open as before": 'with made("kept", "w") as f: f.write("pwned")',
    "remove": 'os.remove("kept")',
}
TRY = """
try:
{uses}
    told = "done"
except BaseException as error:
    told = type(error).__name__
print("reached")
told
"""


@asynccontextmanager
async def session_of(run: Runner) -> AsyncIterator[Session]:
    session = await run.sandbox.open_session()
    try:
        yield session
    finally:
        session.close()


def trying(uses: str) -> str:
    return TRY.format(uses="\n".join(f"    {line}" for line in uses.splitlines()))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", USES)
async def test_open_file_is_of_no_use_to_a_run_without_files(run: Runner, tmp_path: Path, name: str) -> None:
    async with granted(run, tmp_path) as files, session_of(run) as session:
        await files.value(HOLD, session)
        before = contents(tmp_path)
        result = await run(trying(USES[name]), session=session)
        assert result.stdout == "reached\n"
        assert result.value != "done"
        assert contents(tmp_path) == before
        # `f.db` is there already.
        again = HOLD.replace("create table t(x)", "create table if not exists t(x)")
        assert (await files(f"{again}\n{trying(USES[name])}", session)).value == "done"
        assert contents(tmp_path) != before


@pytest.mark.parametrize("name", USES)
async def test_open_file_does_not_lead_back_to_the_former_folder(
    run: Runner, tmp_path: Path, name: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with granted(run, first) as files, granted(run, second) as others, session_of(run) as session:
        await files.value(HOLD, session)
        before = contents(first)
        assert (await others(trying(USES[name]), session)).stdout == "reached\n"
        assert contents(first) == before
        assert (await files(trying(USES[name]), session)).stdout == "reached\n"


FETCHES = {
    "the function itself": 'await fetch(BASE + "/pwned")',
    "a call made before": "await call",
    "a function of its own": "await held()",
    "a raw call": RAW_HOST + "host.exchange('9999 portal.fetch {\"url\": \"' + BASE + '/pwned\"}', 5000)",
}


@pytest.mark.parametrize("name", FETCHES)
async def test_fetch_that_was_held_goes_to_whoever_answers_the_run(
    run: Runner, server: Server, name: str
) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}")
    hold = (
        f'BASE = "{server.base}"\nfetch = portal.fetch\ncall = fetch(BASE + "/pwned")\n'
        'async def later(): return await fetch(BASE + "/pwned")\nheld = later\n(await fetch(BASE + "/first")).text'
    )
    async with session_of(run) as session:
        assert (await fetch(hold, session=session)).value == "/first"
        port = EchoPort()
        result = await run(trying(FETCHES[name]), session=session, port=port)
        assert result.stdout == "reached\n"
        assert [call.function for call in port.calls] == ["portal.fetch"]
        assert [request.path for request in server.requests] == ["/first"]
        twin = await fetch('(await fetch(BASE + "/twin")).text', session=session)
        assert twin.value == "/twin"
