"""Every way in which a run ends, each with the answer that it must give."""

import asyncio
from dataclasses import dataclass, field

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox

_RAW_HOST = "from wit_world.imports import host\n"
_TWICE = "host.exchange('7 bench.echo {}', 9)\n" * 2
_GATHER = "import asyncio\nlen(await asyncio.gather(*[bench.echo(i=i) for i in range(20)]))"
_CATCH = "try:\n    await bench.fail()\nexcept ToolError as e:\n    x = e.code\nx"
_START = "import asyncio\ntask = asyncio.create_task(bench.hang())\nawait bench.echo()\n"
_VALUE = {"x": [1, None, "é"]}
_SHORT = {"wall_seconds": 0.02}
_LITTLE = {"result_bytes": 1000, "argument_bytes": 1000}


@dataclass(frozen=True)
class Way:
    """A script, its limits, and what it must answer: an error's code, or else a value.

    `kills` says that the worker does not outlive it.
    """

    name: str
    script: str
    code: str | None = None
    value: Json = None
    stdout: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    kills: bool = False


GOOD = (
    Way("nothing", ""),
    Way("expression", "1 + 1", value=2),
    Way("print and value", f"print('a'); print('b')\n{_VALUE}", value=_VALUE, stdout="a\nb\n"),
    Way("one call", "await bench.echo(i=1)", value={"i": 1}),
    Way("gathered calls", _GATHER, value=20),
    Way("sequential calls", "for i in range(10):\n    x = await bench.echo(i=i)\nx", value={"i": 9}),
    Way("caught error", _CATCH, value="bench_failed"),
    Way("forgotten await", "bench.echo(i=2)", value={"i": 2}),
    Way("cancelled call", _START + "task.cancel()", value=True),
    Way("call left behind", _START + "5", value=5),
    Way("memory used and freed", "x = bytearray(20_000_000)\nlen(x)", value=20_000_000),
    Way("clean exit", "import sys\nprint('bye')\nsys.exit(0)", stdout="bye\n"),
    Way("stdout cut", "print('x' * 1000)\n1", value=1, stdout="x" * 100, limits={"stdout_bytes": 100}),
)

BAD = (
    Way("exception", "print('kept')\n1 / 0", "script_error", stdout="kept\n"),
    Way("unknown name", "nothing_there", "script_error"),
    Way("uncaught tool error", "await bench.fail()", "bench_failed"),
    Way("syntax", "def f(:", "syntax_error"),
    Way("exit status", "import sys\nsys.exit(3)", "script_exit"),
    Way("hard exit", "import os\nos._exit(3)", "script_exit"),
    Way("no JSON", "1j", "result_not_json"),
    Way("value too deep", "x = []\nfor _ in range(500): x = [x]\nx", "result_not_json"),
    Way("value too long", "'x' * 2000", "result_limit", limits=_LITTLE),
    Way("arguments too long", "await bench.echo(x='x' * 2000)", "argument_limit", limits=_LITTLE),
    Way(
        "outcome too long", "await bench.echo(x='x' * 2000)", "outcome_limit", limits={"outcome_bytes": 1000}
    ),
    Way(
        "too many calls",
        "for i in range(9): await bench.echo(i=i)",
        "tool_calls_limit",
        limits={"tool_calls": 3},
    ),
    Way("CPU", "print('kept')\nwhile True: pass", "cpu_limit", stdout="kept\n", limits={"cpu_seconds": 0.05}),
    Way("CPU in C", "sum(range(10**12))", "cpu_limit", limits={"cpu_seconds": 0.05}),
    Way("memory at once", "bytearray(10**9)", "memory_limit", limits={"memory_mib": 64}),
    Way(
        "memory in pieces",
        "a = []\nwhile True: a.append('x' * 100_000)",
        "memory_limit",
        limits={"memory_mib": 64},
    ),
    Way("abort", "import os\nos.abort()", "script_error"),
    Way("recursion", "def f(): f()\nf()", "script_error"),
    Way("stack", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", "script_error"),
    Way(
        "batch too long",
        _RAW_HOST + "host.exchange('1 a.b ' + 'x' * 8_000_000, 0)",
        "argument_limit",
        limits=_LITTLE,
    ),
    Way("block too long", _RAW_HOST + "host.emit('x' * 2000)", "result_limit", limits=_LITTLE),
    Way("wall", "await bench.hang()", "wall_limit", limits=_SHORT, kills=True),
    Way(
        "wall while asleep",
        "import time\nprint('kept')\ntime.sleep(60)",
        "wall_limit",
        stdout="kept\n",
        limits={"wall_seconds": 0.3},
        kills=True,
    ),
    Way("wall while computing", "while True: pass", "wall_limit", limits=_SHORT, kills=True),
    Way("forged batch", _RAW_HOST + "host.exchange('nonsense', 0)", "worker_lost", kills=True),
    Way("forged number", _RAW_HOST + _TWICE, "worker_lost", kills=True),
)


class PortError(Exception):
    """A fault of whoever answers the calls, as a portal's bug would be."""


class Port:
    """Answers calls; `hanging` is set when one will never be answered."""

    def __init__(self) -> None:
        self.hanging = asyncio.Event()
        self.under_way = 0

    async def __call__(self, call: ToolCall) -> Outcome:
        if call.function == "bench.fail":
            return Outcome(error=CallError("bench_failed", "it failed"))
        if call.function == "bench.bug":
            raise PortError
        if call.function != "bench.hang":
            return Outcome(call.arguments)
        self.hanging.set()
        self.under_way += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.under_way -= 1
        return Outcome()


async def take(sandbox: Sandbox, way: Way) -> str:
    """Run it; returns what is wrong with the answer, "" for nothing."""
    port = Port()
    async with sandbox.run(Limits.model_validate(way.limits), str) as run:
        await run.prepare(way.script, ("bench",))
        result = await run.execute({}, port)
    return fault_of(result, way.code, way.value, way.stdout) or ("calls were left" if port.under_way else "")


def fault_of(result: RunResult, code: str | None, value: Json, stdout: str) -> str:
    found = result.error.code if result.error is not None else None
    if found != code:
        return f"code {found} instead of {code}: {result.error.message if result.error else result.value}"
    if (result.value, result.stdout) != (value, stdout):
        return f"value {result.value!r:.60}, stdout {result.stdout!r:.60}"
    return ""
