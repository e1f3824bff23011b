"""A record of other types is refused, and a forged one does no harm. Other tests replay what was kept as JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.errors import SandboxError
from sandbox_runtime.frames import TrapCause
from sandbox_runtime.recording import Event, Origin, Record
from sandbox_runtime.replay import replay
from sandbox_runtime.result import RunError
from sandbox_runtime.sandbox import Sandbox
from tests.depth import depth
from tests.sandbox_runtime.replay.recorder import RECORD, kept
from tests.sandbox_runtime.running import where

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
MOMENT = st.integers(0, 10**13)
COUNT = st.integers(0, 2**64 - 1)
READS = st.lists(st.tuples(st.sampled_from(["", "+"]), st.integers(1, 10**9)), min_size=1).map(
    lambda looks: " ".join(f"{sign}{number}" for sign, number in looks)
)
ERROR = st.builds(RunError, TEXT, TEXT, st.none() | st.integers(1, 1000), TEXT, TEXT)
CAUSES = st.sampled_from([cause.name for cause in TrapCause])
EVENTS = st.lists(
    st.builds(Event, st.sampled_from(["parsed", "resumed"]), st.just(""), MOMENT)
    | st.builds(Event, st.just("clock"), READS | TEXT)
    | st.builds(Event, st.sampled_from(["sent", "answered", "printed", "emitted", "finished"]), TEXT, COUNT)
    | st.builds(Event, st.just("trapped"), CAUSES, COUNT)
    | st.builds(Event, st.just("stopped"), st.just(""), COUNT, ERROR)
).map(tuple)


STORED = Record(
    Origin("a" * 64, bytes(32), 1, 2, 0), "1", ("git",), Limits(), 9, "{}", (Event("finished", "b"),)
)
FORGED: list[tuple[str, Json]] = [
    ("format", 1),
    ("script", "x" * ((1 << 20) + 1)),
    ("namespaces", ["x" * 1001]),
    ("limits", {"memory_mib": 10**9}),
    ("longest_call", 1 << 40),
    ("events", [{"kind": "exploded"}]),
    ("events", [{"kind": "parsed", "number": 1, "more": 1}]),
    ("events", [{"kind": "answered", "text": None}]),
    ("events", [{"kind": "stopped", "error": "x"}]),
    ("surprise", 1),
]


@pytest.mark.parametrize(("key", "value"), FORGED)
def test_forged_text_is_refused(key: str, value: Json) -> None:
    stored = json.loads(RECORD.dump_json(STORED))
    assert RECORD.validate_json(json.dumps(stored)).script == "1"
    with pytest.raises(ValidationError):
        RECORD.validate_json(json.dumps({**stored, key: value}))


@depth(0.3)
@given(events=EVENTS, wall_ms=MOMENT, monotonic_ms=MOMENT)
async def test_forged_record_ends_in_an_error_or_a_result_and_makes_no_call(
    sandbox: Sandbox, events: tuple[Any, ...], wall_ms: int, monotonic_ms: int
) -> None:
    script = "import time, datetime\nprint(time.time())\nawait git.git_log(i=1)"
    settings = '{"library": {}, "argument_bytes": 9, "result_bytes": 9}'
    origin = Origin(sandbox.component, bytes(32), wall_ms, monotonic_ms, 0)
    limits = Limits(cpu_seconds=0.1, wall_seconds=1)
    record = Record(origin, script, ("git",), limits, 1 << 20, settings, events)
    try:
        await replay(sandbox, kept(record), where)
    except SandboxError as error:
        assert str(error)
