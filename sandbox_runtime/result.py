"""What came of a run."""

from dataclasses import dataclass

from manifests.json_value import Json


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run did not end well. `code` is stable; `line` and `traceback` are the script's own."""

    code: str
    message: str
    line: int | None = None
    hint: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run. With an error `value` is None, and `stdout` and `emitted` hold what came before it.

    `cpu_ms` is the worker's own measure, 0 when the worker was killed.
    """

    value: Json
    error: RunError | None
    stdout: str
    stdout_bytes_dropped: int
    emitted: tuple[dict[str, Json], ...]
    notices: tuple[str, ...]
    wall_ms: float
    cpu_ms: float
