"""The answer of a run: what a client gets, and what the store keeps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from manifests.json_value import Json
from portal.ledger import Ledger
from portal.store.records import OPEN, RunState
from sandbox_runtime.guest_json import encode
from sandbox_runtime.result import RunError

GOING_WELL = ("ok", *OPEN)


@dataclass(frozen=True)
class Answer:
    """The result of one run, before it is truncated for the reader.

    `emitted` are the MCP content blocks that the script passed to `portal.emit`, in order. `waiting` says what a
    waiting run waits for. `kept` has the handles of parts that are kept whole. `sources` are where its data came from,
    for the flow rules; None if nobody knows.
    """

    status: RunState
    run_id: str
    result: Json = None
    stdout: str = ""
    error: RunError | None = None
    calls: Sequence[dict[str, Json]] = ()
    notices: Sequence[str] = ()
    session: str | None = None
    waiting: Sequence[dict[str, Json]] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    emitted: Sequence[dict[str, Json]] = field(default=(), repr=False)
    sources: Sequence[str] | None = None

    def structured(self) -> dict[str, Json]:
        """The answer as JSON. `session`, `waiting` and `kept` are present only if they say something."""
        error = None if self.error is None else asdict(self.error)
        if error is not None and not error["traceback"]:
            del error["traceback"]
        answer: dict[str, Json] = {
            "status": self.status,
            "result": self.result,
            "stdout": self.stdout,
            "error": error,
            "calls": list(self.calls),
            "notices": list(self.notices),
            "run_id": self.run_id,
        }
        if self.session is not None:
            answer["session"] = self.session
        if self.waiting:
            answer["waiting"] = list(self.waiting)
        if self.kept:
            answer["kept"] = dict(self.kept)
        return answer

    def dump(self) -> bytes:
        """The whole answer as JSON."""
        return encode({**self.structured(), "emitted": list(self.emitted), "sources": self.sources})


def load_answer(text: bytes) -> Answer:
    """An answer that `dump` wrote. Raises ValueError: it is damaged."""
    try:
        data: Any = json.loads(text)
        error = data.pop("error")
        return Answer(error=None if error is None else RunError(**error), **data)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("the stored answer is damaged") from None


def with_effects(error: RunError, ledger: Ledger) -> RunError:
    """The error, with a warning if calls of the failed run may have had effects."""
    done, unknown = ledger.count("done"), ledger.count("unknown")
    if not (done or unknown):
        return error
    counts = ", ".join(f"{count} {state}" for count, state in ((done, "done"), (unknown, "unknown")) if count)
    effects = f"Calls of this run: {counts}. Read `calls` before you run it again."
    hint = error.hint.strip()
    end = "" if not hint or hint.endswith((".", "!", "?", ":")) else "."
    return replace(error, hint=f"{hint}{end} {effects}".strip())
