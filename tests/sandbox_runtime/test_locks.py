"""What waits for another thread waits its time, or is told that there is none: scripts have one thread."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

HELD = """
import asyncio, concurrent.futures, queue, threading
held = threading.Lock()
held.acquire()
full = queue.Queue(maxsize=1)
full.put(1)
"""
WAITS = [
    ("threading.Event().wait({0})", "False"),
    ("held.acquire(timeout={0})", "False"),
    ("threading.Semaphore(0).acquire(timeout={0})", "False"),
    ("threading.Barrier(2).wait({0})", "BrokenBarrierError"),
    ("queue.Queue().get(timeout={0})", "Empty"),
    ("queue.SimpleQueue().get(timeout={0})", "Empty"),
    ("full.put(2, timeout={0})", "Full"),
    ("concurrent.futures.Future().result(timeout={0})", "TimeoutError"),
]
ENDLESS = [
    "threading.Event().wait()",
    "held.acquire()",
    "threading.Semaphore(0).acquire()",
    "threading.Barrier(2).wait()",
    "queue.Queue().get()",
    "queue.SimpleQueue().get()",
    "full.put(2)",
    "full.join()",
    "concurrent.futures.Future().result()",
    "asyncio.run_coroutine_threadsafe(asyncio.sleep(0), asyncio.new_event_loop()).result()",
]
ATTEMPT = """
import time
def attempt():
    try:
        return str({0})
    except Exception as error:
        return type(error).__name__
began = time.monotonic()
"""


@pytest.mark.parametrize(("wait", "outcome"), WAITS)
async def test_wait_with_a_timeout_has_its_time(run: Runner, wait: str, outcome: str) -> None:
    script = HELD + ATTEMPT.format(wait.format(0.05))
    assert await run.value(f"{script}[attempt(), time.monotonic() - began >= 0.05]") == [outcome, True]


async def test_wait_with_a_timeout_costs_no_computing_and_is_ended_in_time(run: Runner) -> None:
    result = await run(
        "import threading\nprint('reached')\nthreading.Event().wait(600)", limits=Limits(wall_seconds=0.3)
    )
    assert result.error is not None and result.error.code == "wall_limit"
    assert result.stdout == "reached\n"


@pytest.mark.parametrize("wait", ENDLESS)
async def test_wait_that_nobody_could_end_is_an_error_with_its_line(sandbox: Sandbox, wait: str) -> None:
    run, session = Runner(sandbox), await sandbox.open_session()
    result = await run(f"{HELD}print('half', end='')\n{wait}", session=session)
    assert result.error is not None
    assert (result.error.code, result.error.line) == ("script_error", HELD.count("\n") + 2)
    assert "DeadlockError" in result.error.message
    assert result.stdout == "half"
    assert (await run("held.locked()", session=session)).value is True
    session.close()


async def test_lock_that_is_free_is_taken_and_let_go(run: Runner) -> None:
    script = """
import queue, threading
lock, event, q = threading.Lock(), threading.Event(), queue.SimpleQueue()
with lock as taken:
    seen = [taken, lock.locked(), lock.acquire(False), lock.acquire(blocking=False), "locked" in repr(lock)]
event.set()
q.put(1)
seen += [lock.locked(), lock.acquire(timeout=1), event.wait(), event.wait(1), q.get(), q.empty()]
for wrong in (lambda: lock.acquire(False, 1), lambda: lock.acquire(True, -2), lambda: threading.Lock().release()):
    try: wrong()
    except (ValueError, RuntimeError) as error: seen.append(type(error).__name__)
condition = threading.Condition(threading.Lock())
with condition: condition.notify_all()
seen
"""
    told = ["ValueError", "ValueError", "RuntimeError"]
    assert await run.value(script) == [
        True,
        True,
        False,
        False,
        True,
        False,
        True,
        True,
        True,
        1,
        True,
        *told,
    ]
