"""The answer of a run, for its client and for the store."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from mcp_types import ContentBlock

from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.base.plain_text import one_line, visible
from portal.base.tokens import compact
from portal.records.ledger import READING, counted, not_done, slow
from portal.records.store.records import ASKING, OPEN, RunState
from portal.runs.content import content_blocks, excerpt, preview, truncate, without_binaries
from sandbox_runtime.guest_json import encode
from sandbox_runtime.result import RunError

GOING_WELL = ("ok", *OPEN)

PREVIEW_TOKENS: Final = 300
"""Tokens of the preview of a value that is too long to show."""

_TOLD_BY_MESSAGE: Final = ("script_error", "syntax_error", "check_failed")


class _Traceback(NamedTuple):
    """What frames look like in a language, the name of the outermost one, and how a script defines a function."""

    frame: re.Pattern[str]
    outermost: str | None
    definition: str

    def defines(self, code: str, name: str | None) -> bool:
        return (
            name is None
            or name.startswith("<")
            or bool(re.search(self.definition.format(re.escape(name)), code))
        )


_MOST_NAMES: Final = 4
"""Functions of a line that are looked for in the script, which takes up to 0.1 s each. A message may imitate frames."""

_TRACEBACKS: Final[Mapping[KernelName, _Traceback]] = {
    PYTHON: _Traceback(
        re.compile(r'File "script\.py", line (?P<line>\d+), in (?P<name>\S+)'), "<module>", r"def {}\("
    ),
    JAVASCRIPT: _Traceback(
        re.compile(r"^ +at (?:(?P<name>.+) \()?script\.js:(?P<line>\d+)", re.MULTILINE),
        None,
        r"(?:function\*? |\b){}(?: *[=:]| ?\([^()]*\) ?\{{)",
    ),
}


@dataclass(frozen=True)
class Answer:
    """The result of one run, before it is truncated for the reader.

    `emitted` are the MCP content blocks that the script passed to `portal.emit`, in order. `waiting` says what a
    waiting run waits for. `kept` has the handles of parts that are kept whole. `sources` are the sources of its data,
    for the flow rules; None if unknown. `at` is the script's line of the error, from `at_line`.
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
    at: str = ""
    kernel: KernelName = PYTHON

    def structured(self) -> dict[str, Json]:
        """The whole answer as JSON. `session`, `waiting` and `kept` are omitted if empty."""
        recall = 'The whole {} is kept: `await portal.recall("{}")` in a script.'
        more = {"session": self.session, "waiting": [*self.waiting], "kept": {**self.kept}}
        return {
            "status": self.status,
            "result": self.result,
            "stdout": self.stdout,
            "error": None if self.error is None else self._whole_error(self.error),
            "calls": [*self.calls],
            "notices": [
                *self._advice(),
                *self.notices,
                *(recall.format(*kept) for kept in self.kept.items()),
            ],
            "run_id": self.run_id,
            **{key: value for key, value in more.items() if value},
        }

    def _whole_error(self, error: RunError) -> dict[str, Json]:
        """The error, with a warning if calls of the failed run may have had effects."""
        told = {key: value for key, value in asdict(error).items() if value or key != "traceback"}
        counts: Counter[str] = Counter()
        for row in self.calls:
            counts[row["state"]] += row.get("count", 1) * (row["function"] != READING)
        effects = ", ".join(f"{counts[state]} {state}" for state in ("done", "unknown") if counts[state])
        if effects and self.status == "error" and "`calls`" not in error.hint:
            warning = f"Calls of this run: {effects}. Read `calls` before you run it again."
            told["hint"] = f"{error.hint.strip()}\n{warning}".strip()
        return told

    def _advice(self) -> list[str]:
        """Advice for a client that gets the answer of a run which has not ended."""
        if self.status not in OPEN:
            return []
        people = ", ".join(str(view["seq"]) for view in self.waiting[:10] if view["kind"] in ASKING)
        asked = [f"A person was asked to decide about call {people}. Only they can."] if people else []
        later = f'Ask for its answer later: execute_code(run="{self.run_id}").'
        return [*asked, f"The run goes on without you. {later}"]

    def lean(
        self, shown: Mapping[str, Json], kept: Mapping[str, str], name: Callable[[str], str]
    ) -> dict[str, Json]:
        """The answer for a model, without empty fields. `shown` are its result and stdout; `name` shortens ids.

        Hidden characters are removed, except from result and stdout, which are data.
        """
        is_over = self.status in ("ok", "error", "refused")
        failure = {} if self.error is None else self._lean_error(self.error)
        values = {key: value for key, value in shown.items() if value is not None}
        if self.status == "ok" and not values:
            values = {"result": None}
        said = compact([failure, values])
        waiting = {view["seq"] for view in self.waiting}
        rows = [row for row in self.calls if row["seq"] not in waiting]
        over = [row for row in rows if self.status not in OPEN or "error" in row]  # others are under way
        took = [] if self.status == "ok" else slow(over)
        waits = [*dict.fromkeys(map(awaited, self.waiting[:10]))]
        needs_run = not is_over or (self.status == "error" and bool(rows))
        parts: dict[str, Json] = {
            "status": "" if is_over else self.status,
            **failure,
            **values,
            "for": waits[0] if len(waits) == 1 else waits,
            "calls": counted(rows),
            "not_done": not_done(over, lambda message: compact(message)[1:-1] in said),
            "notices": [*(visible(notice[:1_000]) for notice in self.notices), *took],
            "kept": {key: name(handle) for key, handle in kept.items()},
            "run": name(self.run_id) if needs_run else "",
            "session": name(self.session or ""),
        }
        told = {key: value for key, value in parts.items() if key in values or value}
        return {key: visible(told[key]) if key in failure else told[key] for key in told}

    def _lean_error(self, error: RunError) -> dict[str, str]:
        message = error.message.removeprefix("The script did not run. ")
        told = message if error.code in _TOLD_BY_MESSAGE else f"{error.code}: {message}"
        key = "refused" if self.status == "refused" else "error"
        return {key: told, "at": self.at, "hint": error.hint}

    def dump(self) -> bytes:
        error = None if self.error is None else asdict(self.error)
        return encode({**vars(self), "error": error})


def at_line(error: RunError, code: str, kernel: KernelName = PYTHON) -> str:
    """`line 3: return int(text) (from line 5)`: the script's innermost line with its source, and the outermost one.

    The source is read from `code`, so no error text can imitate it. A function of an earlier script has no source here.
    """
    lines, form = re.split("\r\n?|\n", code), _TRACEBACKS[kernel]
    if error.line is None or error.line > len(lines):
        return ""
    frames = [(int(each["line"]), each["name"]) for each in form.frame.finditer(error.traceback)]
    names = dict.fromkeys(name for line, name in frames if line == error.line)
    is_own = all(form.defines(code, name) for name in islice(names, _MOST_NAMES))
    source = f": {lines[error.line - 1].strip()[:120]}" if is_own else ""
    # The message follows the frames in Python, and else precedes them. It may imitate some, as may that of a cause.
    before, found, after = error.traceback.rpartition(error.message)
    told = before if kernel == PYTHON else after * bool(found)
    outer = [int(each["line"]) for each in form.frame.finditer(told) if each["name"] == form.outermost]
    outer = outer[-1:] if kernel == PYTHON else outer[:1]
    led = f" (from line {outer[0]})" if outer not in ([], [error.line]) else ""
    return f"line {error.line}{source}{led}"


def awaited(view: Mapping[str, Json]) -> str:
    """What a run waits for, in words."""
    asked, until = view.get("asked"), f"until {view['until']}" if "until" in view else ""
    if asked:
        return one_line(f"a person: {asked.get('question', view['function'])}", 200)
    return f"event {view['event']!r} {until}".strip() if "event" in view else until or str(view["kind"])


class Fitted(NamedTuple):
    """The text for a model, the whole shape if it is wanted, and emitted blocks. `cut` names the parts that are cut."""

    text: dict[str, Json]
    structured: dict[str, Json] | None
    blocks: Sequence[ContentBlock]
    cut: set[str]


def fitted(
    answer: Answer,
    name: Callable[[str], str],
    max_tokens: int,
    output_tokens: int,
    kept: Mapping[str, str] | None = None,
    *,
    is_whole: bool,
) -> Fitted:
    """The answer within `output_tokens` (o200k_base), emitted texts included.

    A value of more than `max_tokens` is shown as a preview, or cut to fit if it could not be kept. `kept` has the
    handles of the parts that are `cut`; None before they are kept.
    """
    emitted = content_blocks(answer.emitted, output_tokens // 2)
    result, left_out = without_binaries(answer.result)
    notices, room = (*answer.notices, *left_out, *emitted.notices), output_tokens - emitted.tokens
    if kept or answer.kept or len(notices) > len(answer.notices):
        answer = replace(answer, result=result, notices=notices, kept=kept or {})
    structured = truncate(answer.structured(), room) if is_whole else None
    whole: dict[str, Json] = {"result": result} | ({"stdout": answer.stdout} if answer.stdout else {})
    shown, others = dict[str, Json](), dict(answer.kept)
    for key, value in whole.items():
        shown[key] = excerpt(value, max_tokens)
        if shown[key] != value and (kept is None or key in kept):
            shown[key] = {"kept": name(others.pop(key, "")), **preview(value, PREVIEW_TOKENS, answer.kernel)}
    text = truncate(answer.lean(shown, others, name), room)
    forms = [text] if structured is None else [text, structured]
    cut = {key for key in whole if whole[key] and any(form.get(key) != whole[key] for form in forms)}
    cut |= {"result"} if left_out else set()
    return Fitted(text, structured, emitted.blocks, cut)


def load_answer(text: bytes) -> Answer:
    """An answer that `dump` wrote. The store has noticed already if it is damaged."""
    data: Any = json.loads(text)
    error = data.pop("error")
    return Answer(error=None if error is None else RunError(**error), **data)
