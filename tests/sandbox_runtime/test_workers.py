"""Worker processes: disposable, alone with their run, replaced when they die, and shared fairly. Linux: /proc."""

import asyncio
import os
import resource
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.fair_queue import FairQueue, QueueLimits, Turns, has_room
from sandbox_runtime.sandbox import Sandbox, Workers, open_sandbox
from sandbox_runtime.worker_process import ForkLauncher, SpawnLauncher
from tests.processes import children, fork_servers
from tests.sandbox_runtime.running import EchoPort, Runner, where
from tests.sandbox_runtime.test_channel_abuse import TakenOver


@pytest.fixture(scope="module", params=[ForkLauncher, SpawnLauncher])
async def sandbox(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=2, progress=print, launch=request.param) as sandbox:
        yield sandbox


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSEGV"])
async def test_worker_that_ends_costs_its_run_and_no_other(
    sandbox: Sandbox, run: Runner, signal_name: str
) -> None:
    port, other = EchoPort(), EchoPort()
    async with sandbox.run(Limits(), where) as doomed:
        await doomed.prepare("print('kept')\nawait git.hangs()", ("git",))
        executing = asyncio.create_task(doomed.execute({}, port))
        spared = asyncio.create_task(run("await git.hangs()", port=other))
        await port.hanging.wait()
        await other.hanging.wait()
        assert doomed.worker_pid is not None
        os.kill(doomed.worker_pid, signal.Signals[signal_name])
        with anyio.fail_after(2):  # less than a worker may be silent
            result = await executing
    assert result.error is not None
    assert (result.error.code, result.stdout, port.cancelled) == ("worker_lost", "kept\n", [1])
    assert not spared.done()
    spared.cancel()
    assert await run.value("1 + 1") == 2


async def test_worker_holds_no_environment_and_nothing_open_but_its_channel(sandbox: Sandbox) -> None:
    async with sandbox.run(Limits(), where) as one:
        process = Path(f"/proc/{one.worker_pid}")
        assert (process / "environ").read_bytes().strip(b"\0") == b""
        opened = [str(entry.readlink()) for entry in (process / "fd").iterdir()]
    assert sum(name.startswith("socket:") for name in opened) == 1
    own = {
        "/dev/null",
        f"{process}/maps",
        f"{process}/pagemap",
        "anon_inode:[eventpoll]",
        "anon_inode:[eventfd]",
    }
    others = [name for name in opened if not name.startswith("socket:") and name not in own]
    assert {Path(name).suffix for name in others if "/libffi.so." not in name} <= {".cwasm"}


async def test_cancelled_run_ends_its_worker_and_its_calls(sandbox: Sandbox, run: Runner) -> None:
    port = EchoPort()
    pid: list[int | None] = []

    async def execute() -> None:
        async with sandbox.run(Limits(), where) as one:
            pid.append(one.worker_pid)
            await one.prepare("await git.hangs()", ("git",))
            await one.execute({}, port)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execute)
        await port.hanging.wait()
        tasks.cancel_scope.cancel()
    assert port.cancelled == [1]
    assert pid[0] is not None
    await _gone(pid[0])
    assert await run.value("1 + 1") == 2


async def test_run_can_be_cancelled_while_its_worker_parses(sandbox: Sandbox, run: Runner) -> None:
    began = anyio.Event()

    async def work() -> None:
        began.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks, sandbox.run(Limits(), where) as one:
        tasks.start_soon(one.prepare, "while True: pass", (), work)
        await began.wait()
        tasks.cancel_scope.cancel()
    assert await run.value("1 + 1") == 2


async def test_workers_are_gone_after_the_sandbox_is_closed() -> None:
    async with open_sandbox(workers=2, progress=print) as sandbox, sandbox.run(Limits(), where) as one:
        pid = one.worker_pid
    assert pid is not None
    await _gone(pid)


async def _gone(pid: int) -> None:
    """Wait until a process is dead; a zombie counts, its parent buries it when it comes to it."""
    with anyio.fail_after(10):
        while _state(pid) not in ("", "Z"):
            await anyio.lowlevel.checkpoint()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_scripts_that_wait_for_each_other_get_workers_beyond_one_per_core() -> None:
    most = 8 * (os.cpu_count() or 1)
    together = anyio.Event()
    arrived = 0

    async def meet(call: ToolCall) -> Outcome:
        nonlocal arrived
        arrived += 1
        if arrived == most:
            together.set()
        await together.wait()
        return Outcome(arrived)

    async def visit(sandbox: Sandbox) -> None:
        async with sandbox.run(Limits(), where) as run:
            await run.prepare("await git.git_log()", ("git",))
            assert (await run.execute({}, meet)).value == most

    async with open_sandbox(progress=print) as sandbox, anyio.create_task_group() as tasks:
        for _ in range(most):
            tasks.start_soon(visit, sandbox)


async def test_scripts_that_compute_get_at_most_two_workers_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_runtime.sandbox._SLOW_SECONDS", 60)  # however busy this machine is
    most = 0

    async def compute(sandbox: Sandbox) -> None:
        nonlocal most
        for _ in range(3):
            async with sandbox.run(Limits(), where) as run:
                await run.prepare("sum(range(200_000))", ())
                assert (await run.execute({}, EchoPort())).error is None
                most = max(most, sum(sandbox.workers.values()))

    cores = max(os.cpu_count() or 1, 2)
    async with open_sandbox(progress=print) as sandbox, anyio.create_task_group() as tasks:
        for _ in range(6 * cores):
            tasks.start_soon(compute, sandbox)
    assert cores < most <= 2 * cores


async def test_fork_server_that_is_killed_takes_its_runs_and_comes_back() -> None:
    others, zombies = fork_servers(), zombies_of(os.getpid())
    async with open_sandbox(workers=2, progress=print, launch=ForkLauncher) as sandbox:
        port, run = EchoPort(), Runner(sandbox)
        session = await sandbox.open_session()
        running = asyncio.create_task(run("print('kept')\nawait git.hangs()", port=port))
        await port.hanging.wait()
        (server,) = set(fork_servers()).difference(others)
        os.kill(server, signal.SIGKILL)
        result = await running
        assert result.error is not None
        assert (result.error.code, result.stdout) == ("worker_lost", "kept\n")
        assert port.cancelled == [1]
        assert await asyncio.gather(*(run.value("1 + 1") for _ in range(6))) == [2] * 6
        assert not session.alive
        assert len(fork_servers()) == len(others) + 1
        assert server not in children(os.getpid())
    assert set(zombies_of(os.getpid())) <= set(zombies)  # those of other tests are gone at the next start


def zombies_of(parent: int) -> list[int]:
    return [pid for pid in children(parent) if _state(pid) == "Z"]


@pytest.mark.parametrize("launch", [ForkLauncher, SpawnLauncher])
async def test_workers_start_beside_thousands_of_files(launch: type[ForkLauncher | SpawnLauncher]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        async with open_sandbox(workers=1, progress=print, launch=launch) as sandbox:
            assert await Runner(sandbox).value("import asyncio\nawait asyncio.sleep(0.001)\n1 + 1") == 2
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize(
    ("script", "runs"), [("x = b'1' * (64 << 20)\n1", True), ("x = [" + "[]," * 60_000 + "]", False)]
)
async def test_memory_of_a_script_is_given_back_before_the_next_one_comes(script: str, runs: bool) -> None:
    async with open_sandbox(workers=1, progress=print) as sandbox:
        async with sandbox.run(Limits(), where) as one:
            pid = one.worker_pid
            await one.prepare(script, ())
            assert not runs or (await one.execute({}, EchoPort())).error is None
            assert runs or _resident_bytes(pid) > 80 << 20
        with anyio.fail_after(5):
            while _resident_bytes(pid) > 60 << 20:
                await anyio.lowlevel.checkpoint()


def _resident_bytes(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class Counting(TakenOver):
    """Counts the workers that it starts. While it `fails` it starts none, as at a process limit."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.launched = 0
        self.fails = False

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        self.launched += 1
        if self.fails:
            raise WorkerStartError("no process is left")
        return await super().launch(end)


@pytest.mark.parametrize("is_retired", [True, False])
async def test_worker_that_ends_takes_no_run_with_it_and_is_replaced_when_one_comes(
    monkeypatch: pytest.MonkeyPatch, is_retired: bool
) -> None:
    monkeypatch.setattr("sandbox_runtime.sandbox._LINGER_SECONDS", 0 if is_retired else 60)
    launcher = Counting()
    pool = Workers(launcher, 1, 1, print)
    await pool.open()
    for launched in (1, 2, 3):
        if not is_retired:
            next(iter(pool.free)).kill("its process ended")
        with anyio.fail_after(5):
            while pool.all:
                await anyio.lowlevel.checkpoint()
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            assert (launcher.launched, len(pool.free)) == (launched, 0)
            worker = await pool.take()
        assert worker.is_alive
        pool.give_back(worker)
    await pool.close()


async def test_start_that_fails_is_tried_again_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_runtime.sandbox._RETRY_SECONDS", 0.001)
    launcher, told = Counting(), list[str]()
    pool = Workers(launcher, 2, 2, told.append)
    await pool.open()
    await pool.take()
    launcher.fails = True
    waiting = asyncio.create_task(pool.take())
    with anyio.fail_after(5):
        while launcher.launched < 10:
            await anyio.lowlevel.checkpoint()
        launcher.fails = False
        assert (await waiting).is_alive
    assert (len(told), len(pool.all)) == (1, 2)
    await pool.close()


async def test_all_who_may_have_a_free_worker_get_one_when_a_caller_leaves() -> None:
    """The share of each of the others grows, not only that of the one who gets the worker that came back."""
    pool = Workers(Counting(), 6, 6, print, QueueLimits(seconds=5))
    await pool.open()
    burst = [await pool.take(f"caller {n}") for n in range(12)]
    for worker in burst[2:]:
        pool.give_back(worker)
    others = [await pool.take(caller) for caller in "bbbbc"]
    pool.waiting.held.update({"a": 1, "d": 1})
    for worker, caller in zip(burst[:2], "ad", strict=True):
        pool.waiting.drop(pool._held[worker][0])
        pool._held[worker] = caller, pool._held[worker][1]
    first, second = (asyncio.create_task(pool.take(caller)) for caller in "ad")
    await asyncio.sleep(0)
    assert not (first.done() or second.done())
    pool.give_back(others[-1])
    assert all(each.is_alive for each in await asyncio.gather(first, second))
    await pool.close()


@pytest.mark.parametrize(
    ("held", "callers", "begins"),
    [
        ("", "a" * 500 + "bc" + "b", "abcabaaa"),  # they take turns
        ("aaab", "aabbcc", "cbcbaa"),  # whoever holds the fewest is served first
    ],
)
async def test_order_of_callers_is_fair(held: str, callers: str, begins: str) -> None:
    queue: FairQueue[None] = FairQueue(QueueLimits(most=1000))
    queue.held.update(held)
    places = {queue.join(caller): caller for caller in callers}
    served = ""
    while (waiter := queue.next()) is not None:
        served += places[waiter]
    assert (served[:8].startswith(begins), len(served), len(queue)) == (True, len(callers), 0)


async def test_waiting_has_an_end() -> None:
    async with open_sandbox(workers=1, progress=print, queue=QueueLimits(seconds=0.05)) as sandbox:
        async with sandbox.run(Limits(), where), sandbox.run(Limits(), where) as late:
            error = (await late.prepare("1", ())).error
        assert error is not None
        assert (error.code, "queue_seconds" in error.message) == ("sandbox_busy", True)
        assert await Runner(sandbox).value("1") == 1


async def test_caller_that_goes_away_while_it_waits_leaves_the_worker_to_the_next() -> None:
    async with open_sandbox(workers=1, progress=print) as sandbox:
        run = Runner(sandbox)
        async with sandbox.run(Limits(), where):
            gone = [asyncio.create_task(run.value("1")) for _ in range(50)]
            while sandbox.waiting < len(gone):
                await anyio.lowlevel.checkpoint()
            patient = asyncio.create_task(run.value("2"))
            for task in gone:
                task.cancel()
        assert await patient == 2
        await asyncio.gather(*gone, return_exceptions=True)
        assert all(task.cancelled() for task in gone)


@pytest.mark.parametrize(
    ("held", "has_more"),
    [("", "abc"), ("aaa", "abc"), ("aaaa", "bc"), ("aaaabb", "c"), ("aaaabbc", "d"), ("aaaabbcd", "")],
)
async def test_who_holds_less_than_a_share_gets_more_though_all_are_taken(held: str, has_more: str) -> None:
    assert "".join(each for each in "abcd" if has_room(Counter(held), each, 4, 8)) >= has_more
    assert not any(has_room(Counter(held), each, 4, 8) for each in set(held) - set(has_more))


async def test_what_comes_in_the_moment_in_which_its_caller_goes_away_is_given_back() -> None:
    queue: FairQueue[str] = FairQueue(QueueLimits())
    given_back = list[str]()
    waiter = queue.join("a")
    waiting = asyncio.create_task(queue.served(waiter, given_back.append))
    await asyncio.sleep(0)
    assert queue.next() is waiter
    waiter.set_result("worker")
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (waiting.cancelled(), given_back) == (True, ["worker"])


async def test_a_turn_is_given_to_another_caller_at_once() -> None:
    turns, had, done = Turns(1, 2), list[str](), anyio.Event()

    async def have(caller: str) -> None:
        async with turns.turn(caller):
            had.append(caller)
            await done.wait()

    async with anyio.create_task_group() as tasks:
        for caller in "aaabc":
            tasks.start_soon(have, caller)
        while len(turns._queue) < 3:
            await anyio.lowlevel.checkpoint()
        assert had == ["a", "b"]
        done.set()
    assert had == ["a", "b", "a", "c", "a"]
