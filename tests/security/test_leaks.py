"""Nothing of a run or a session is left to another, however it ended; what a session holds does not outlast a grant."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.sandbox import Sandbox, Session, open_sandbox
from tests.sandbox_runtime.fetching import Server, granting
from tests.sandbox_runtime.granted_files import granted
from tests.sandbox_runtime.running import EchoPort, Runner
from tests.security.hostile import ALL_MEMORY, OWN_FRAMES, RAW_HOST

pytestmark = pytest.mark.anyio


class Leak(NamedTuple):
    """`leave` leaves something, `look` finds it: `found` in the same run or session, `clean` anywhere else."""

    leave: str
    look: str
    found: Json = True
    clean: Json = False


LEAKS = {
    "global": Leak("x = 1", "'x' in globals()"),
    "module": Leak("import sys\nsys.modules['leak'] = sys", "import sys\n'leak' in sys.modules"),
    "patched_builtin": Leak(
        "import builtins\nbuiltins.abs = len", "abs('aaa') if abs is len else abs(-7)", 3, 7
    ),
    "module_of_the_portal": Leak(
        "import portal\nportal.leak = 1", "import portal\n'leak' in vars(portal)", True, False
    ),
    "class_of_the_interpreter": Leak(
        OWN_FRAMES + "type(interpreter_itself()).leak = 1",
        OWN_FRAMES + "hasattr(interpreter_itself(), 'leak')",
    ),
    "random_state": Leak(
        "import random\nrandom.seed(7)", "import random\nrandom.getstate() == random.Random(7).getstate()"
    ),
    "filter_of_warnings": Leak(
        "import warnings\nwarnings.simplefilter('error')",
        "import warnings\nwarnings.filters[0][0]",
        "error",
        "default",
    ),
    "context_variable": Leak(
        "import contextvars, sys\nsys.leak = contextvars.ContextVar('leak')\nsys.leak.set(1)",
        "import contextvars\nlen(contextvars.copy_context())",
        1,
        0,
    ),
    "open_descriptor": Leak(
        "import os\nos.close(0)", "import os\ntry: os.fstat(0); x = 1\nexcept OSError: x = 0\nx", 0, 1
    ),
    "subclass": Leak(
        "class Leak(Exception): pass", "any(c.__name__ == 'Leak' for c in Exception.__subclasses__())"
    ),
}

ENDINGS = {
    "well": "7",
    "error": "1 / 0",
    "exit": "import sys\nsys.exit(3)",
    "abort": "import os\nos.abort()",
    "stopped": "while True: pass",
    "no_memory": "bytearray(10**9)",
    "no_stack": "def f(): f()\nf()",
    "broken_rules": "from wit_world.imports import host\nhost.exchange('x', 9)",
}
PATTERN = "'leaked' + ' pattern'"


def counted(end: str) -> str:
    """A script that counts the pattern in all memory below an address, and returns both.

    Not from 0: CPython takes a copy from there for one from nowhere.
    """
    return f"""{ALL_MEMORY}
wanted, piece, end = ({PATTERN}).encode(), 1 << 20, {end}
[sum(all_memory()[at : min(at + piece, end)].count(wanted) for at in range(16, end, piece)), end]
"""


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    """One worker, so that two runs are sure to share it."""
    async with open_sandbox(workers=1, progress=print) as sandbox:
        yield sandbox


@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS)
async def test_what_a_run_leaves_is_there_for_itself_and_gone_for_others(run: Runner, leak: Leak) -> None:
    await run(leak.leave)
    assert (await run(leak.look)).value == leak.clean
    assert await run.value(f"{leak.leave}\n{leak.look}") == leak.found


@pytest.mark.parametrize("ending", ENDINGS)
async def test_nothing_is_left_however_the_run_ends(run: Runner, ending: str) -> None:
    leave = "import builtins, json\nbuiltins.leak = 1\njson.leak = 1\nx = 1\nprint('left', end='')\n"
    await run(leave + ENDINGS[ending], limits=Limits(cpu_seconds=0.1))
    look = "import builtins, json\n[hasattr(builtins, 'leak'), hasattr(json, 'leak'), 'x' in globals()]"
    result = await run(look)
    assert (result.value, result.stdout) == ([False, False, False], "")


@pytest.mark.parametrize("texts", [100, 1000])
async def test_memory_of_a_run_is_not_found_in_another(run: Runner, texts: int) -> None:
    """Of 1,000 texts the memory grows. Then, as after an abort, the next run has a new instance."""
    fill = f"filled = [({PATTERN}) * 1000 for _ in range({texts})]\n"
    found, end = await values(run, fill + counted("max(id(text) + len(text) for text in filled)"))
    assert found > texts * 900
    for ending in ("", "import os\nos.abort()"):
        await run(fill + ending)
        # What is found now is the pattern that is looked for. The memory has to be large enough.
        filled = f"filled = bytes({20_000_000 if texts == 1000 else 10})\n"
        again, _ = await values(run, filled + counted(str(end)))
        assert again < 10


async def values(run: Runner, script: str) -> list[int]:
    found = await run.value(script)
    assert isinstance(found, list)
    return [int(str(each)) for each in found]


async def test_calls_that_were_not_sent_are_not_sent_by_another(run: Runner) -> None:
    port = EchoPort()
    await run(OWN_FRAMES + "interpreter_itself()._calls._outbox.append('1 git.git_log {}')", port=port)
    await run("await asyncio.sleep(0)", port=port)
    assert port.calls == []
    await run("await git.git_log()", port=port)
    assert len(port.calls) == 1


async def test_late_answer_is_not_given_to_another(run: Runner) -> None:
    await run(RAW_HOST + "host.exchange('\\n'.join(f'{i} git.git_log {{}}' for i in range(1, 60)), 0)")
    assert await run.value(RAW_HOST + "host.exchange('', 0)") == ""


async def test_limits_of_a_run_are_not_those_of_another(run: Runner) -> None:
    tight = Limits(memory_mib=40, stdout_bytes=10, result_bytes=50, tool_calls=1, cpu_seconds=0.1)
    assert (await run("print('x' * 100)\nwhile True: pass", limits=tight)).stdout_bytes_dropped > 0
    result = await run(
        "print('x' * 100)\n[await git.git_log() for _ in 'ab']\nlen(bytearray(10**8)) * 'x'[:1] and 'x' * 100"
    )
    assert (result.error, result.value, result.stdout_bytes_dropped) == (None, "x" * 100, 0)


async def test_blocks_of_a_run_are_not_in_the_answer_of_another(run: Runner) -> None:
    await run("portal.emit({'type': 'text', 'text': 'left'})\nimport os\nos.abort()")
    assert (await run("1")).emitted == ()
    assert (await run("portal.emit({'type': 'text', 'text': 'mine'})")).emitted == (
        {"type": "text", "text": "mine"},
    )


async def test_randomness_is_drawn_anew(run: Runner) -> None:
    drawing = "[random.random(), secrets.token_hex(), str(uuid.uuid4()), os.urandom(8).hex()]"
    drawn = [await run.value(f"import os, random, secrets, uuid\n{drawing}") for _ in range(5)]
    assert all(len(set(column)) == 5 for column in zip(*drawn, strict=True))


@pytest.fixture(scope="module")
async def sessions(sandbox: Sandbox) -> AsyncIterator[Sequence[Session]]:
    """Two, in which all leaks are tried one after the other."""
    first, second = await sandbox.open_session(), await sandbox.open_session()
    yield first, second
    first.close()
    second.close()


# A context variable holds per run.
@pytest.mark.parametrize("name", sorted(LEAKS.keys() - {"context_variable"}))
async def test_what_a_session_keeps_is_its_own(run: Runner, sessions: Sequence[Session], name: str) -> None:
    (first, second), leak = sessions, LEAKS[name]
    await run(leak.leave, session=first)
    assert (await run(leak.look, session=second)).value == leak.clean
    assert (await run(leak.look)).value == leak.clean
    assert (await run(leak.look, session=first)).value == leak.found


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


def trying(uses: str) -> str:
    return TRY.format(uses="\n".join(f"    {line}" for line in uses.splitlines()))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", USES)
async def test_open_file_is_of_no_use_without_files(
    run: Runner, session: Session, tmp_path: Path, name: str
) -> None:
    async with granted(run, tmp_path) as files:
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
    run: Runner, session: Session, tmp_path: Path, name: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with granted(run, first) as files, granted(run, second) as others:
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
    run: Runner, session: Session, server: Server, name: str
) -> None:
    fetch = granting(run, f"127.0.0.1:{server.port}")
    hold = (
        f'BASE = "{server.base}"\nfetch = portal.fetch\ncall = fetch(BASE + "/pwned")\n'
        'async def later(): return await fetch(BASE + "/pwned")\nheld = later\n(await fetch(BASE + "/first")).text'
    )
    assert (await fetch(hold, session=session)).value == "/first"
    port = EchoPort()
    result = await run(trying(FETCHES[name]), session=session, port=port)
    assert result.stdout == "reached\n"
    assert [call.function for call in port.calls] == ["portal.fetch"]
    assert [request.path for request in server.requests] == ["/first"]
    twin = await fetch('(await fetch(BASE + "/twin")).text', session=session)
    assert twin.value == "/twin"
