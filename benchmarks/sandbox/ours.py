"""Ours, across its process border, locked down; calls are answered at once. Each script has an instance of its own."""

import asyncio
import time
from collections.abc import Sequence

from pydantic import TypeAdapter

from benchmarks.measuring import percentile
from benchmarks.sandbox import workload
from benchmarks.sandbox.workload import Measures, latency, median_ms, ms
from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.recording import Record, Recording
from sandbox_runtime.replay import replay
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, Session, open_sandbox

WORKERS = 2
LIMITS = Limits(tool_calls=100_000, parallel_calls=1024, cpu_seconds=60)
SESSIONS = 8
WAITING = 1000
ROWS = workload.rows()
SEQUENTIAL = f"for i in range({workload.CALLS}):\n    await bench.echo(i=i)"
GATHERED = f"import asyncio\nlen(await asyncio.gather(*[bench.echo(i=i) for i in range({workload.CALLS})]))"
SLOW = f"import asyncio\nlen(await asyncio.gather(*[bench.slow(i=i) for i in range({workload.SLOW_CALLS})]))"
LARGE = "rows = await bench.rows()\n[row for row in rows if row['id'] % 1200 == 0]"
ONE_CALL = "await bench.echo(i=1, text='x')"

CALLS_33 = """\
first = await asyncio.gather(*[bench.echo(i=i) for i in range(20)])
async with asyncio.timeout(30):
    more = await asyncio.gather(*[bench.echo(i=i) for i in range(9)])
for i in range(4):
    await bench.echo(i=i)
"""


async def compared() -> Measures:
    """What the others are asked, too."""
    started = time.perf_counter()
    async with open_sandbox(workers=WORKERS, progress=print) as sandbox:
        await _run(sandbox, workload.TRIVIAL)
        measures: Measures = {workload.START: ms(started)}
        measures |= await _trivial(sandbox)
        measures[workload.THROUGHPUT] = await _throughput(sandbox)
        pid = await _pid(sandbox)
        await asyncio.sleep(0.5)  # until its next instance is ready, and nothing else
        measures |= _memory(workload.MEMORY, [pid])
        return measures | {
            workload.SEQUENTIAL: await _median(sandbox, SEQUENTIAL, 5) / workload.CALLS * 1000,
            workload.GATHERED: await _median(sandbox, GATHERED, 10) / workload.CALLS * 1000,
            workload.SLOW: await _median(sandbox, SLOW, 20),
            workload.LARGE: await _median(sandbox, LARGE, 7),
            workload.LOOP_MS: await _median(sandbox, workload.LOOP, 3),
        }


async def alone() -> tuple[Measures, tuple[str, ...]]:
    """What only ours does; and what its workers have given up besides what the engine denies."""
    async with open_sandbox(workers=WORKERS, progress=print) as sandbox:
        measures: Measures = {"script with one call, p50, ms": await _median(sandbox, ONE_CALL, 200)}
        measures |= await _recording(sandbox)
        measures |= await _replay(sandbox)
        measures |= await _fairness(sandbox)
        measures |= await _replacement(sandbox)
        measures |= await _sessions(sandbox)
        return measures, sandbox.protections


async def _trivial(sandbox: Sandbox) -> Measures:
    times, cpu = [], []
    for _ in range(workload.TRIVIAL_ROUNDS):
        await asyncio.sleep(workload.PAUSE_SECONDS)
        started = time.perf_counter()
        result = await _run(sandbox, workload.TRIVIAL)
        times.append(ms(started))
        cpu.append(result.cpu_ms)
    return {**latency(times), "trivial script, worker CPU of the run, p50, ms": percentile(cpu, 0.5)}


async def _recording(sandbox: Sandbox) -> Measures:
    """The same scripts in turns, plain and recorded; CPU of portal and worker, since what is sought is small."""
    measures: Measures = {}
    for name, script, rounds in (("a trivial script", workload.TRIVIAL, 1000), ("33 calls", CALLS_33, 100)):
        times: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * rounds):
            recording = Recording() if turn % 2 else None
            started = time.process_time()
            result = await _run(sandbox, script, recording)
            times[recording is not None].append(result.cpu_ms + (time.process_time() - started) * 1000)
        plain, recorded = percentile(times[False], 0.5), percentile(times[True], 0.5)
        measures |= {f"{name}, CPU, p50, ms": plain, f"recording {name}, CPU, p50, ms more": recorded - plain}
    return measures


async def _replay(sandbox: Sandbox) -> Measures:
    recording = Recording()
    await _run(sandbox, CALLS_33, recording)
    assert recording.record is not None
    times = []
    for _ in range(100):
        started = time.perf_counter()
        await replay(sandbox, recording.record, str)
        times.append(ms(started))
    size = len(TypeAdapter(Record).dump_json(recording.record))
    return {"replay of 33 calls, p50, ms": percentile(times, 0.5), "record of 33 calls, bytes": size}


async def _throughput(sandbox: Sandbox) -> float:
    async def client() -> None:
        for _ in range(workload.THROUGHPUT_RUNS // workload.CLIENTS):
            await _run(sandbox, workload.TRIVIAL)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(workload.CLIENTS)))
    return workload.THROUGHPUT_RUNS / (time.perf_counter() - started)


async def _fairness(sandbox: Sandbox) -> Measures:
    """A script of one caller, while another has a thousand waiting."""
    times = []
    for _ in range(3):
        many = [asyncio.create_task(_run(sandbox, workload.TRIVIAL, caller="many")) for _ in range(WAITING)]
        await asyncio.sleep(0)  # all of them join the queue
        for _ in range(20):
            started = time.perf_counter()
            await _run(sandbox, workload.TRIVIAL, caller="one")
            times.append(ms(started))
        await asyncio.gather(*many)
    return {f"script of one caller while another has {WAITING:,} waiting, p50, ms": percentile(times, 0.5)}


async def _replacement(sandbox: Sandbox) -> Measures:
    """From the moment a worker is told to die until two scripts have run, so that its successor ran one."""
    times = []
    for _ in range(20):
        async with sandbox.run(LIMITS, str) as run:
            assert run.worker is not None
            run.worker.kill("to measure what follows")
        started = time.perf_counter()
        await asyncio.gather(*(_run(sandbox, workload.TRIVIAL) for _ in range(WORKERS)))
        times.append(ms(started))
    return {"killed worker replaced and used, p50, ms": percentile(times, 0.5)}


async def _sessions(sandbox: Sandbox) -> Measures:
    """Sessions that hold a thousand rows, parked between two scripts."""
    begin, later, pids = [], [], []
    sessions = []
    for _ in range(SESSIONS):
        started = time.perf_counter()
        sessions.append(await sandbox.open_session())
        await _run_in(
            sandbox, sessions[-1], "import json, re\nrows = [{'id': i, 'name': str(i)} for i in range(1000)]"
        )
        begin.append(ms(started))
    for session in sessions * 5:
        started = time.perf_counter()
        pids.append(await _run_in(sandbox, session, "len(rows)"))
        later.append(ms(started))
    measures = {
        "session begun and a script run in it, p50, ms": percentile(begin, 0.5),
        "later script of a session, p50, ms": percentile(later, 0.5),
        **_memory("private memory of a parked session, MB", pids[:SESSIONS]),
    }
    for session in sessions:
        session.close()
    return measures


async def _run_in(sandbox: Sandbox, session: Session, script: str) -> int:
    async with sandbox.run(LIMITS, str, session) as run:
        await run.prepare(script, ())
        result = await run.execute({}, _answer)
        if result.error is not None:
            raise RuntimeError(result.error.message)
        return run.worker_pid or 0


def _memory(what: str, pids: Sequence[int]) -> Measures:
    """Of the processes, the median; nothing where there is no /proc."""
    sizes = [size for pid in pids if (size := workload.private_mb(pid)) is not None]
    return {what: percentile(sizes, 0.5)} if sizes else {}


async def _pid(sandbox: Sandbox) -> int:
    async with sandbox.run(LIMITS, str) as run:
        return run.worker_pid or 0


async def _median(sandbox: Sandbox, script: str, rounds: int) -> float:
    return await median_ms(lambda: _run(sandbox, script), rounds)


async def _run(
    sandbox: Sandbox, script: str, recording: Recording | None = None, caller: str = ""
) -> RunResult:
    async with sandbox.run(LIMITS, str, recording=recording, caller=caller) as run:
        await run.prepare(script, ("bench",))
        result = await run.execute({}, _answer)
    if result.error is not None:
        raise RuntimeError(result.error.message)
    return result


async def _answer(call: ToolCall) -> Outcome:
    if call.function == "bench.slow":
        await asyncio.sleep(workload.SLOW_SECONDS)
    return Outcome(ROWS if call.function == "bench.rows" else call.arguments)
