"""One file of tests, run in the sandbox to its end, whatever its tests do to the runs."""

import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from benchmarks.language.verdict import FileResult, Library, Verdict
from manifests.grants import FileGrant, Limits
from manifests.json_value import Json
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.grants.files import Workspaces
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox

SCRIPT = Path(__file__).with_name("inside.py").read_text("utf-8")
MARK = "@@language "
FILE_CPU_SECONDS = 60
RUN_CPU_SECONDS = 10
EARLY_SECONDS = 2
"""A test that takes a run's time has failed, if it began as early as this; else it gets a run of its own."""
LIMITS = Limits(
    wall_seconds=120,
    cpu_seconds=RUN_CPU_SECONDS,
    memory_mib=1024,
    tool_calls=1,
    stdout_bytes=64 << 20,
)
GRANT = FileGrant(
    workspace=".",
    mode="write",
    total_bytes=1 << 30,
    total_files=100_000,
    file_bytes=64 << 20,
    operations=1_000_000,
)
TIME_IS_UP = "the benchmark's time for a file was up"


@dataclass(frozen=True)
class Bench:
    """Where tests run. `folder` is the workspace, in which `suite` lies."""

    sandbox: Sandbox
    workspaces: Workspaces
    folder: Path

    async def run_file(
        self, module: str, chosen: Collection[int] | None = None, library: Library = "own"
    ) -> FileResult:
        """Run the tests of a file, or those of these numbers; in several runs, where a test ends one."""
        file_result = FileResult()
        left = chosen
        while left is None or (left and file_result.cpu_seconds < FILE_CPU_SECONDS):
            result = await self._execute(module, left, library)
            file_result.cpu_seconds += result.cpu_ms / 1000
            ending = _Ending(file_result)
            for line in result.stdout.splitlines():
                if line.startswith(MARK):
                    ending.hear(json.loads(line.removeprefix(MARK)))
            rest = ending.settle(result)
            left = (
                set(range(len(file_result.names)) if chosen is None else chosen) - file_result.verdicts.keys()
            )
            if rest is not None:
                file_result.verdicts |= dict.fromkeys(left, rest)
                return file_result
        file_result.verdicts |= dict.fromkeys(left, Verdict("skipped", TIME_IS_UP))
        return file_result

    async def _execute(self, module: str, chosen: Collection[int] | None, library: Library) -> RunResult:
        numbers = None if chosen is None else sorted(chosen)
        task = {"module": module, "numbers": numbers, "library": library}
        (self.folder / "task.json").write_text(json.dumps(task), "utf-8")
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        async with (
            self.workspaces.files(None) as files,
            self.sandbox.run(LIMITS, str, grants=RunGrants(files=files)) as run,
        ):
            prepared = await run.prepare(SCRIPT, ())
            assert prepared.error is None, prepared.error
            return await run.execute({}, no_calls)


async def no_calls(call: ToolCall) -> Outcome:
    raise AssertionError(f"a test calls {call.function}")


class _Ending:
    """Follows one run, to know which test ended it."""

    def __init__(self, file_result: FileResult) -> None:
        self._file = file_result
        self._has_begun = False
        self._is_early = False
        self._begun: int | None = None
        self._is_done = False

    def hear(self, line: dict[str, Json]) -> None:
        verdicts = self._file.verdicts
        if "begins" in line:
            self._begun = line["begins"]
            self._is_early = not self._has_begun or line["after_seconds"] < EARLY_SECONDS
            self._has_begun = True
        elif "ends" in line:
            self._begun = None
            verdicts[line["ends"]] = _verdict(line)
        elif "group" in line:
            # setUpClass or setUpModule: "setUpClass (test.test_x.TheClass)"
            scope = line["group"].partition("(")[2].rstrip(")")
            for number, name in enumerate(self._file.names):
                if name.startswith(f"{scope}."):
                    verdicts.setdefault(number, _verdict(line))
        elif "tests" in line:
            self._file.names = line["tests"]
        elif line["file"] == "done":
            self._is_done = True
        else:
            self._file.whole = Verdict(line["file"], line["reason"], line["trace"])

    def settle(self, result: RunResult) -> Verdict | None:
        """The verdict on what is left, or None if another run may go on with that."""
        if self._file.whole is not None:
            return self._file.whole
        if self._is_done:
            return Verdict("failed", "it never began")
        error = result.error
        why = Verdict("failed", "the run ended" + (f": {error.code}: {error.message}" if error else ""))
        if not self._file.names:
            self._file.whole = why
        if not self._has_begun:
            return why
        is_out_of_time = error is not None and error.code == "cpu_limit"
        if self._begun is not None and (self._is_early or not is_out_of_time):
            self._file.verdicts[self._begun] = why
        return None


def _verdict(line: dict[str, Json]) -> Verdict:
    return Verdict(line["outcome"], line.get("reason", ""), line.get("trace", ""))
