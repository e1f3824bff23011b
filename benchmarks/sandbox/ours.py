"""Question: what does the sandbox itself cost, across its process border, with calls that are answered at once?

    python -m benchmarks.sandbox

Every run has an instance of its own. Raw numbers go to benchmarks/results/sandbox.json.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import RESULTS, machine, percentile
from manifests.models import Limits
from sandbox_runtime.calls import Outcome, ToolCall
from sandbox_runtime.record_json import dump_record
from sandbox_runtime.recording import Recording
from sandbox_runtime.replay import replay
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from sandbox_runtime.session import Session

WORKERS = 2
LIMITS = Limits(tool_calls=100_000, parallel_calls=1024, cpu_seconds=60)
CLIENTS = 8
THROUGHPUT_RUNS = 2400
SESSIONS = 8
WAITING = 1000
PAUSE_SECONDS = 0.004
ROWS = [
    {"id": i, "name": f"row {i}", "tags": ["a", "b"], "note": "x" * 130, "score": i / 7}
    for i in range(24_000)
]

CALLS_33 = """\
first = await asyncio.gather(*[bench.echo(i=i) for i in range(20)])
async with asyncio.timeout(30):
    more = await asyncio.gather(*[bench.echo(i=i) for i in range(9)])
for i in range(4):
    await bench.echo(i=i)
"""

Measures = dict[str, float]


async def main() -> None:
    started = time.perf_counter()
    async with open_sandbox(workers=WORKERS, progress=print) as sandbox:
        await _run(sandbox, "1 + 1")
        measures: Measures = {"open sandbox to first result, ms": _ms(started)}
        measures |= await _trivial(sandbox)
        measures |= await _calls(sandbox)
        measures |= await _large_result(sandbox)
        measures |= await _loop(sandbox)
        measures |= await _recording(sandbox)
        measures |= await _replay(sandbox)
        measures |= await _throughput(sandbox)
        measures |= await _fairness(sandbox)
        measures |= await _replacement(sandbox)
        measures |= await _sessions(sandbox)
        measures |= _memory("a spare worker", [await _pid(sandbox)])
        protections = sandbox.protections
    for name, value in measures.items():
        print(f"{value:12,.2f}  {name}")
    report = {
        "question": (__doc__ or "").splitlines()[0],
        "machine": machine(),
        "workers": WORKERS,
        "protections": protections,
        "measures": measures,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "sandbox.json").write_text(json.dumps(report, indent=2) + "\n")


async def _trivial(sandbox: Sandbox) -> Measures:
    times, cpu = [], []
    for _ in range(1000):
        await asyncio.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        result = await _run(sandbox, "1 + 1")
        times.append(_ms(started))
        cpu.append(result.cpu_ms)
    return {
        "trivial script, p50, ms": percentile(times, 0.5),
        "trivial script, p99, ms": percentile(times, 0.99),
        "trivial script, worker CPU of the run, p50, ms": percentile(cpu, 0.5),
    }


async def _calls(sandbox: Sandbox) -> Measures:
    one = "await bench.echo(i=1, text='x')"
    sequential = "for i in range(1000):\n    await bench.echo(i=i)"
    gathered = "import asyncio\nlen(await asyncio.gather(*[bench.echo(i=i) for i in range(1000)]))"
    slow = "import asyncio\nlen(await asyncio.gather(*[bench.slow(i=i) for i in range(50)]))"
    return {
        "script with one call, p50, ms": await _median(sandbox, one, 200),
        "1,000 sequential calls, p50, us per call": await _median(sandbox, sequential, 5),
        "1,000 gathered calls, p50, us per call": await _median(sandbox, gathered, 10),
        "50 parallel calls of 50 ms, p50, ms": await _median(sandbox, slow, 20),
    }


async def _large_result(sandbox: Sandbox) -> Measures:
    size = len(json.dumps(ROWS))
    script = "rows = await bench.rows()\n[row for row in rows if row['id'] % 1200 == 0]"
    return {f"a {size / 1e6:.1f} MB result filtered to 20 rows, p50, ms": await _median(sandbox, script, 7)}


async def _loop(sandbox: Sandbox) -> Measures:
    loop = "total = 0\nfor i in range(3_000_000):\n    total += i % 7\n"
    native = compile(f"def f():\n    {loop.replace(chr(10), chr(10) + '    ')}\nf()", "loop", "exec")
    inside = await _median(sandbox, f"def f():\n    {loop.replace(chr(10), chr(10) + '    ')}\nf()", 3)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        exec(native, {})
        times.append(_ms(started))
    return {"pure Python loop, times the portal's own Python": inside / percentile(times, 0.5)}


async def _recording(sandbox: Sandbox) -> Measures:
    """The same scripts in turns, plain and recorded; CPU of portal and worker, since what is sought is small."""
    measures: Measures = {}
    for name, script, rounds in (("a trivial script", "1 + 1", 1000), ("33 calls", CALLS_33, 100)):
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
        await replay(sandbox, recording.record)
        times.append(_ms(started))
    size = len(dump_record(recording.record))
    return {"replay of 33 calls, p50, ms": percentile(times, 0.5), "record of 33 calls, bytes": size}


async def _throughput(sandbox: Sandbox) -> Measures:
    async def client() -> None:
        for _ in range(THROUGHPUT_RUNS // CLIENTS):
            await _run(sandbox, "1 + 1")

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return {
        f"trivial scripts per second, {CLIENTS} clients": THROUGHPUT_RUNS / (time.perf_counter() - started)
    }


async def _fairness(sandbox: Sandbox) -> Measures:
    """A script of one caller, while another has a thousand waiting."""
    times = []
    for _ in range(3):
        many = [asyncio.create_task(_run(sandbox, "1 + 1", caller="many")) for _ in range(WAITING)]
        await asyncio.sleep(0)  # all of them join the queue
        for _ in range(20):
            started = time.perf_counter()
            await _run(sandbox, "1 + 1", caller="one")
            times.append(_ms(started))
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
        await asyncio.gather(*(_run(sandbox, "1 + 1") for _ in range(WORKERS)))
        times.append(_ms(started))
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
        begin.append(_ms(started))
    for session in sessions * 5:
        started = time.perf_counter()
        pids.append(await _run_in(sandbox, session, "len(rows)"))
        later.append(_ms(started))
    measures = {
        "session begun and a script run in it, p50, ms": percentile(begin, 0.5),
        "later script of a session, p50, ms": percentile(later, 0.5),
        **_memory("a parked session", pids[:SESSIONS]),
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
    try:
        texts = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids]
    except OSError:
        return {}
    sizes = [
        sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) for lines in texts
    ]
    return {f"private memory of {what}, MB": percentile(sizes, 0.5) / 1000}


async def _pid(sandbox: Sandbox) -> int:
    async with sandbox.run(LIMITS, str) as run:
        return run.worker_pid or 0


async def _median(sandbox: Sandbox, script: str, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        await _run(sandbox, script)
        times.append(_ms(started))
    return percentile(times, 0.5)


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
        await asyncio.sleep(0.05)
    return Outcome(ROWS if call.function == "bench.rows" else call.arguments)


def _ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    asyncio.run(main())
