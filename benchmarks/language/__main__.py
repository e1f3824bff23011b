"""Question: how much of Python is the Python in the sandbox? CPython's own tests, file by file.

    nice -n 10 python -m benchmarks.language [--suite FOLDER] [MODULE ...]

The tests come from Debian's newest package for the version inside, else from an installed Python, and run with files
granted, without the resources that CPython's own runner leaves out, too. What fails is run again by itself, and then
with the library imported anew and with the suite's own, to know what only a newer library does. It takes about 20
minutes of one core. With names of modules it runs those alone and shows what failed. Numbers go to
benchmarks/results/language.json.
"""

import argparse
import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.language.file_run import GRANT, Bench, no_calls
from benchmarks.language.report import FileCount, count, failures, rows, summary
from benchmarks.language.rules import cannot_apply
from benchmarks.language.suite import Suite, find_suite
from benchmarks.language.verdict import Entry, Verdict
from benchmarks.measuring import RESULTS, commit, machine
from manifests.grants import Limits
from sandbox_runtime.grants.files import open_workspaces
from sandbox_runtime.sandbox import Sandbox, open_sandbox

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "language"


async def run(options: argparse.Namespace) -> None:
    suite = find_suite(options.suite, CACHE)
    entries: list[Entry] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        suite.link_into(folder / "suite")
        sandbox = await stack.enter_async_context(open_sandbox(workers=1, progress=print))
        workspaces = await stack.enter_async_context(open_workspaces(GRANT, folder, str))
        version = await version_inside(sandbox)
        for module in options.modules or suite.modules():
            entry = await examine(Bench(sandbox, workspaces, folder), module)
            entries.append(entry)
            show(entry, count(entry, suite.count_tests), with_failures=bool(options.modules))
    if not options.modules:
        write(suite, version, entries)


async def examine(bench: Bench, module: str) -> Entry:
    """Run one file; then, by themselves, those of its tests that failed without an excuse."""
    own = await bench.run_file(module)
    doubtful = {number for number in own.failed() if _is_doubtful(own.verdicts[number])}
    again = await bench.run_file(module, doubtful)
    doubtful &= {*again.failed()}
    fresh = await bench.run_file(module, doubtful, "fresh")
    doubtful &= {*fresh.failed()}
    newer = await bench.run_file(module, doubtful, "suite")
    seconds = sum(each.cpu_seconds for each in (own, again, fresh, newer))
    return Entry(module, seconds, own, again.verdicts, fresh.verdicts, newer.verdicts)


def _is_doubtful(verdict: Verdict) -> bool:
    """A test that another try costs as much time as the first one gets none."""
    return cannot_apply(verdict) is None and "cpu_limit" not in verdict.reason


async def version_inside(sandbox: Sandbox) -> str:
    async with sandbox.run(Limits(), str) as run:
        await run.prepare("import sys; sys.version", ())
        return str((await run.execute({}, no_calls)).value)


def show(entry: Entry, counted: FileCount, *, with_failures: bool) -> None:
    cannot = f", {counted.cannot.total()} cannot apply" if counted.cannot else ""
    print(
        f"{entry.module}: {counted.passed} passed, {len(counted.failures)} failed{cannot} "
        f"({entry.cpu_seconds:.0f} s)",
        flush=True,
    )
    if not with_failures:
        return
    traces = {name: entry.own.verdicts[number].trace for number, name in enumerate(entry.own.names)}
    for name, reason in counted.failures:
        print(f"--- {name}\n{traces.get(name) or reason}")


def write(suite: Suite, version: str, entries: list[Entry]) -> None:
    counts = [count(entry, suite.count_tests) for entry in entries]
    report = {
        "question": (__doc__ or "").splitlines()[0],
        "machine": machine(),
        "commit": commit(),
        "inside": version,
        "suite": suite.source,
        "cpu_minutes": round(sum(entry.cpu_seconds for entry in entries) / 60),
        "summary": summary(counts),
        "failures": failures(counts),
        "files": list(rows(counts)),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "language.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(json.dumps(report["summary"], indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", type=Path, help="a folder with CPython's package `test`, and its library")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="for example test.test_json.test_decode")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
