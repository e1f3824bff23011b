"""Nothing survives between runs, however the first one ended: they have nothing in common but a process."""

from collections.abc import AsyncIterator

import pytest

from manifests.grants import Limits
from sandbox_runtime.sandbox import open_sandbox
from tests.sandbox_runtime.running import EchoPort, Runner
from tests.security.hostile import ALL_MEMORY, OWN_FRAMES, RAW_HOST
from tests.security.leaks import LEAKS, Leak

pytestmark = pytest.mark.anyio

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
async def run(anyio_backend: str) -> AsyncIterator[Runner]:
    """One worker, so that two runs are sure to share it."""
    async with open_sandbox(workers=1, progress=print) as sandbox:
        yield Runner(sandbox)


@pytest.mark.parametrize("leak", LEAKS, ids=str)
async def test_what_a_run_leaves_is_gone(run: Runner, leak: Leak) -> None:
    await run(leak.leave)
    assert (await run(leak.look)).value == leak.clean


@pytest.mark.parametrize("leak", LEAKS, ids=str)
async def test_what_a_run_leaves_is_there_for_itself(run: Runner, leak: Leak) -> None:
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
        again, _ = await values(
            run, f"filled = bytes({20_000_000 if texts == 1000 else 10})\n" + counted(str(end))
        )
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
