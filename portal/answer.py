"""What `execute_code` answers: `{status, result, stdout, error, calls, notices, run_id, session?}`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from manifests.json_value import Json
from sandbox_runtime.result import RunError

Status: TypeAlias = Literal["ok", "error", "refused"]
"""ok: the script ended; error: it was begun and failed; refused: nothing of it ran."""


@dataclass(frozen=True)
class Answer:
    """The facts of one run, before they are made to fit the reader's tokens.

    `emitted` are MCP content blocks that the script handed to `portal.emit`, in order.
    """

    status: Status
    run_id: str
    result: Json = None
    stdout: str = ""
    error: RunError | None = None
    calls: Sequence[dict[str, Json]] = ()
    notices: Sequence[str] = ()
    session: str | None = None
    emitted: Sequence[dict[str, Json]] = field(default=(), repr=False)

    def structured(self) -> dict[str, Json]:
        """The answer as JSON. `session` is there only when the run belongs to one."""
        answer: dict[str, Json] = {
            "status": self.status,
            "result": self.result,
            "stdout": self.stdout,
            "error": None if self.error is None else _error(self.error),
            "calls": list(self.calls),
            "notices": list(self.notices),
            "run_id": self.run_id,
        }
        if self.session is not None:
            answer["session"] = self.session
        return answer


def _error(error: RunError) -> dict[str, Json]:
    """`{code, message, line, hint, traceback?}`."""
    row: dict[str, Json] = {
        "code": error.code,
        "message": error.message,
        "line": error.line,
        "hint": error.hint,
    }
    if error.traceback:
        row["traceback"] = error.traceback
    return row
