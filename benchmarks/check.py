"""Question: what does it cost to check a script before it runs, with few and with many tools behind the portal?

    python -m benchmarks.check [--registries FILE] [--tools 30 1800 6261] [--scripts 3000]

A script of 30 lines that uses three namespaces of recorded registries, another one each time, is checked by the
portal's own checker with a warm type checker behind it: what a new script waits, what CPU the two of them use for it
(side by side, so that it waits for less), and what one waits that was checked before. Then thousands of different
scripts, for the type checker's memory; and the first checks after it was killed.
On a busy machine `chrt -f 5` before it lets it go first, which the results then say. Writes
benchmarks/results/check.json.
"""

import argparse
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from benchmarks import processes
from benchmarks.measuring import RESULTS, commit, machine, percentile
from benchmarks.registries import REGISTRIES, read_tools
from manifests.grants import Limits
from manifests.names import namespace_of
from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.snapshot import Snapshot
from portal.library.function import Function
from portal.library.library import Library, LibrarySource, write_stubs
from sandbox_runtime.guest.script import Script
from sandbox_runtime.result import Bounds, Prepared, read_prepared
from upstreams.tools import RecordedTool

WARM_UP = 50
ROUNDS = 400
TURN = 20
LINES = 30
VALUES = {"str": "'a{n}'", "int": "{n}", "float": "{n}.5", "bool": "True"}

PART = """rows_{i} = await {function}({arguments})
print(type(rows_{i}).__name__, len(str(rows_{i})))
found_{i} = []
for number in range({n}):
    more = await {function}({arguments})
    if more != rows_{i}:
        found_{i}.append((number, str(more)[:{n}]))
names_{i} = sorted({{text for _, text in found_{i} if text}})
names_{i} = names_{i} or ["nothing of {n}"]
"""


def compiled(registries: dict[str, list[Any]], least: int) -> Library:
    """The library of the first registries that have at least so many tools together."""
    sources: dict[str, LibrarySource] = {}
    count = 0
    for server, tools in registries.items():
        if count >= least:
            break
        namespace = namespace_of(server)
        if namespace not in sources:
            sources[namespace] = LibrarySource(server, namespace, "", [recorded(tool) for tool in tools])
            count += len(tools)
    return Library.compile([*sources.values()])


def recorded(tool: dict[str, Any]) -> RecordedTool:
    return RecordedTool(
        tool["name"],
        tool.get("description") or "",
        tool["inputSchema"],
        tool.get("outputSchema"),
        {},
        tool.get("title"),
    )


def callable_functions(library: Library) -> Iterator[Function]:
    """One function of each namespace that takes plain values only, and at least one."""
    for namespace in library.namespaces.values():
        for function in namespace.functions.values():
            required = [each for each in function.parameters if each.required]
            if required and all(each.annotation in VALUES for each in required):
                yield function
                break


def script(functions: Sequence[Function], number: int) -> str:
    """A script of `LINES` lines that calls each function; with another number it is another script throughout."""
    parts = ["import json\n"]
    for index, function in enumerate(functions):
        values = {
            parameter.name: VALUES[parameter.annotation].format(n=number)
            for parameter in function.parameters
            if parameter.required
        }
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        parts.append(PART.format(i=index, n=number, function=function.qualified, arguments=arguments))
    names = ", ".join(f"names_{index}" for index in range(len(functions)))
    parts.append(f"answer = dict(zip('abc', [{names}]))\njson.dumps(answer)\n")
    text = "".join(parts)
    assert text.count("\n") == LINES, text.count("\n")
    return text


def prepared(text: str, library: Library) -> Prepared:
    """The script as the sandbox would hand it over."""
    parsed = Script.parse(text, frozenset(library.namespaces))
    prepared: Any = {"source": parsed.source, "names": [*parsed.names], "notices": parsed.notices}
    if parsed.usage is not None:
        usage = parsed.usage
        prepared |= {"uses": usage.uses, "problems": usage.problems, "unguarded_lines": usage.unguarded_lines}
    return read_prepared(json.dumps(prepared).encode(), text, Bounds(Limits(), str))


class Setting:
    """A checker over one library, and scripts for it that are all different."""

    def __init__(self, checker: Checker, library: Library) -> None:
        self.library = library
        self.first_ms = 0.0
        self.type_checker = 0
        self.new_ms: list[float] = []
        self.repeated_ms: list[float] = []
        self.cpu_ms = {"portal": 0.0, "type_checker": 0.0}
        self.memory_mb: list[float] = []
        self._checker = checker
        self._snapshot = Snapshot(library, None, {}, {})
        self._functions = [
            function for function, _ in zip(callable_functions(library), range(3), strict=False)
        ]
        self._numbers = itertools.count(1)

    async def turn(self) -> None:
        scripts, same = self.scripts(TURN), self.scripts(1) * (TURN + 1)
        before = (time.process_time() * 1000, processes.cpu_ms(self.type_checker))
        self.new_ms += await self.times(scripts)
        self.cpu_ms["portal"] += time.process_time() * 1000 - before[0]
        self.cpu_ms["type_checker"] += processes.cpu_ms(self.type_checker) - before[1]
        self.repeated_ms += (await self.times(same))[1:]

    async def new(self, count: int) -> list[float]:
        """Milliseconds that each of so many new scripts took."""
        return await self.times(self.scripts(count))

    def scripts(self, count: int) -> list[Prepared]:
        texts = (script(self._functions, next(self._numbers)) for _ in range(count))
        return [prepared(text, self.library) for text in texts]

    async def times(self, scripts: Iterable[Prepared]) -> list[float]:
        times = []
        for each in scripts:
            began = time.perf_counter()
            found = await self._checker.check(each, self._snapshot)
            times.append((time.perf_counter() - began) * 1000)
            if found:
                sys.exit(f"a correct script got findings: {found}")
        return times


@asynccontextmanager
async def opened(library: Library) -> AsyncIterator[Setting]:
    with tempfile.TemporaryDirectory() as folder:
        changed = write_stubs(library, Path(folder))
        before = processes.children(os.getpid())
        async with open_checker(Path(folder)) as checker:
            await checker.update(library, changed)
            setting = Setting(checker, library)
            [setting.first_ms] = await setting.new(1)
            [setting.type_checker] = set(processes.children(os.getpid())).difference(before)
            yield setting


async def measure(libraries: Sequence[Library], scripts: int) -> list[dict[str, Any]]:
    """The settings take turns, so that whatever else the machine does meets all of them."""
    async with AsyncExitStack() as stack:
        settings = [await stack.enter_async_context(opened(library)) for library in libraries]
        for setting in settings:
            await setting.new(WARM_UP)
            setting.memory_mb.append(processes.memory(setting.type_checker))
        for _ in range(ROUNDS // TURN):
            for setting in settings:
                await setting.turn()
        for _ in range(3):
            for setting in settings:
                await setting.new(scripts // 3)
                setting.memory_mb.append(processes.memory(setting.type_checker))
        return [await row(setting) for setting in settings]


async def row(setting: Setting) -> dict[str, Any]:
    os.kill(setting.type_checker, signal.SIGKILL)
    return {
        "servers": len(setting.library.namespaces),
        "functions": len(setting.library.functions),
        "first_ms": round(setting.first_ms, 1),
        "new": summary(setting.new_ms),
        "new_cpu_ms": {name: round(used / len(setting.new_ms), 2) for name, used in setting.cpu_ms.items()},
        "repeated": summary(setting.repeated_ms),
        "type_checker_mb": setting.memory_mb,
        "after_kill_ms": [round(ms, 1) for ms in await setting.new(3)],
    }


def summary(times: Sequence[float]) -> dict[str, float]:
    return {
        "p50_ms": round(percentile(times, 0.5), 3),
        "p95_ms": round(percentile(times, 0.95), 3),
        "p99_ms": round(percentile(times, 0.99), 3),
    }


def goes_first() -> bool:
    """Whether this process, and the type checker that it starts, run before all ordinary ones (Linux)."""
    return hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) == os.SCHED_FIFO


def report(rows: Sequence[dict[str, Any]]) -> None:
    print(f"{'functions':34}" + "".join(f"{row['functions']:>16,}" for row in rows))
    for key in ("new", "repeated"):
        cells = (f"{row[key]['p50_ms']:.2f} / {row[key]['p99_ms']:.2f}" for row in rows)
        print(f"{key + ' script, p50 / p99 ms':34}" + "".join(f"{cell:>16}" for cell in cells))
    print(f"{'the very first script, ms':34}" + "".join(f"{row['first_ms']:>16}" for row in rows))
    print(f"{'after a kill -9, ms':34}" + "".join(f"{row['after_kill_ms'][0]:>16}" for row in rows))
    cells = (" + ".join(f"{used:.1f}" for used in row["new_cpu_ms"].values()) for row in rows)
    print(f"{'CPU of both for a new one, ms':34}" + "".join(f"{cell:>16}" for cell in cells))
    cells = (" ".join(f"{size:.0f}" for size in row["type_checker_mb"]) for row in rows)
    print(f"{'type checker, MB, as scripts go by':34}" + "".join(f"{cell:>16}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registries", type=Path, default=REGISTRIES)
    parser.add_argument("--tools", type=int, nargs="+", default=[30, 1_800, 6_261])
    parser.add_argument("--scripts", type=int, default=3_000)
    options = parser.parse_args()
    measured_on = machine()
    registries = read_tools(options.registries)
    rows = anyio.run(measure, [compiled(registries, least) for least in options.tools], options.scripts)
    report(rows)
    result = {
        "commit": commit(),
        "machine": measured_on,
        "goes_first": goes_first(),
        "lines": LINES,
        "scripts": options.scripts,
        "rows": rows,
    }
    (RESULTS / "check.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
