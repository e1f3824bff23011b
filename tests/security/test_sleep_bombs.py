"""Waiting without end ends at the limit of the wall clock, whoever waits: Python, the loop, the host, the engine."""

import asyncio

import anyio
import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.running import EchoPort
from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, breaks, exceeds, raises
from tests.security.hostile import RAW_HOST
from tests.security.test_import_machinery import SLEEP_ANEW

pytestmark = pytest.mark.anyio

LIMIT = exceeds("wall_seconds", 0.3)
UNENDING = raises("RuntimeError: the script waited in a way that no limit could end")


def bomb(name: str, attack: str, setup: str = "", fate: Fate = LIMIT) -> Attack:
    return Attack(
        name, attack, fate, "time.sleep(0.01)\nawait asyncio.sleep(0.01, 7)", 7, "import time\n" + setup
    )


ATTACKS = [
    bomb("sleep", "time.sleep(600)"),
    bomb("sleep_for_ever", "time.sleep(float('inf'))"),
    bomb("sleep_beyond_numbers", "time.sleep(1e300)"),
    bomb("sleep_again_and_again", "while True: time.sleep(0.01)"),
    bomb("sleep_of_no_number", "time.sleep(float('nan'))", fate=raises("ValueError")),
    bomb(
        "engines_own_sleep", SLEEP_ANEW, "import importlib.util, importlib.machinery as machinery", UNENDING
    ),
    bomb("loop_sleeps", "await asyncio.sleep(600)"),
    bomb("loop_sleeps_for_ever", "await asyncio.sleep(float('inf'))"),
    bomb("loop_sleeps_again_and_again", "while True: await asyncio.sleep(0.01)"),
    bomb("timer", "await asyncio.wait_for(asyncio.Event().wait(), 600)"),
    bomb("select", "select.select([], [], [], 600)", "import select"),
    bomb("poll", "select.poll().poll(600_000)", "import select"),
    bomb("selector", "selectors.DefaultSelector().select(600)", "import selectors"),
    bomb("call", "await git.hangs()"),
    bomb("calls", "await asyncio.gather(*[git.hangs() for _ in range(99)])"),
    bomb(
        "call_that_may_not_be_cancelled",
        "while True:\n    try: await asyncio.shield(git.hangs())\n    except BaseException: pass",
    ),
    bomb("call_in_a_loop_of_its_own", "asyncio.run(main())", "async def main(): await git.hangs()"),
    bomb("raw_wait", "host.exchange('', 600_000)", RAW_HOST),
    bomb("raw_wait_without_end", "host.exchange('1 git.hangs {}', -1)", RAW_HOST),
    bomb("raw_wait_beyond_numbers", "while True: host.exchange('', 2**63 - 1)", RAW_HOST),
    bomb("event_that_never_comes", "await asyncio.Event().wait()", fate=raises("DeadlockError")),
    bomb(
        "lock_taken_twice",
        "lock.acquire()\nlock.acquire()",
        "import threading\nlock = threading.Lock()",
        raises("DeadlockError"),
    ),
    bomb(
        "engines_own_lock_taken_twice",
        "lock.acquire()\nlock.acquire()",
        "import _thread\nlock = _thread.allocate_lock()",
        breaks(),
    ),
    bomb("queue_that_stays_empty", "queue.Queue().get()", "import queue", raises("DeadlockError")),
    bomb("queue_with_a_timeout", "queue.Queue().get(timeout=600)", "import queue"),
    bomb(
        "lock_with_a_timeout",
        "lock.acquire()\nlock.acquire(timeout=600)",
        "import threading\nlock = threading.Lock()",
    ),
    bomb("input", "input()", fate=raises("EOFError")),
    bomb(
        "generator_that_waits",
        "async for _ in wait(): pass",
        "async def wait():\n    while True:\n        await asyncio.sleep(0.01)\n        yield 1",
    ),
    bomb(
        "sleep_while_it_ends", "raise Slow", "class Slow(Exception):\n    def __str__(self): time.sleep(600)"
    ),
    bomb(
        "sleep_as_it_is_let_go",
        "del slow",
        "class Slow:\n    def __del__(self): time.sleep(600)\nslow = Slow()",
    ),
    bomb(
        "task_that_will_not_end",
        "task = asyncio.ensure_future(stay())\nawait asyncio.sleep(0.01)",
        "async def stay():\n    while True:\n        try: await asyncio.sleep(600)\n        except BaseException: pass",
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_waiting_ends_at_its_limit(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS[:1], ids=str)
async def test_waiting_a_little_goes_through(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


WAITING = {
    "loop": "await git.git_log()\nwhile True: pass",
    "sleep": "await git.git_log()\nimport time\ntime.sleep(600)",
    "select": "await git.git_log()\nimport select\nselect.select([], [], [], 600)",
    "call": "await git.git_log()\nawait git.hangs()",
    "integer": "await git.git_log()\n10 ** 10 ** 8",
    "expression": "await git.git_log()\nimport re\nre.match('(a+)+$', 'a' * 40 + 'b')",
}


@pytest.mark.parametrize("waiting", WAITING)
async def test_run_whose_client_is_gone_ends_with_its_calls(arena: Arena, waiting: str) -> None:
    port = EchoPort()
    task = asyncio.create_task(arena.run(WAITING[waiting], Limits(wall_seconds=60, cpu_seconds=60), port))
    with anyio.fail_after(20):
        while not port.calls:
            await anyio.lowlevel.checkpoint()
        if waiting == "call":
            await port.hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(port.cancelled) == (waiting == "call")
    await arena.is_well()


async def test_waiting_costs_no_computing(arena: Arena) -> None:
    script = "import time\ntime.sleep(0.2)\nawait asyncio.sleep(0.2)\n7"
    result = await arena.run(script, Limits(cpu_seconds=0.1))
    assert (result.error, result.value) == (None, 7)
