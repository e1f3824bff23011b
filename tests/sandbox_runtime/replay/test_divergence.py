"""A replay of something else than what was recorded names the first thing that differs."""

from dataclasses import replace as changed

import pytest

from manifests.grants import Limits
from sandbox_runtime.errors import DivergenceError, RecordError, ReplayInterruptedError
from sandbox_runtime.recording import Event, Record
from sandbox_runtime.replay import Repetition, replay
from sandbox_runtime.result import RunError
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import Recorder
from tests.sandbox_runtime.running import EchoPort, where

pytestmark = pytest.mark.anyio

SCRIPT = """\
import time
print("begin")
first = await git.git_log(i=1)
started = time.time()
second = await git.git_log(i=2, given=first["chance"])
print("end")
[first, second, started]
"""


async def diverged(sandbox: Sandbox, record: Record) -> DivergenceError:
    with pytest.raises(DivergenceError) as raised:
        await replay(sandbox, record, where)
    return raised.value


def index_of(record: Record, kind: str, nth: int = 0) -> int:
    return [index for index, event in enumerate(record.events) if event.kind == kind][nth]


@pytest.mark.parametrize(
    ("old", "new", "kind", "nth"),
    [
        ("i=1", "i=3", "sent", 0),
        ('print("begin")\n', "", "printed", 0),
        ("started = time.time()\n", "started = 1\n", "clock", 0),
        ("second = await", "second = await asyncio.sleep(0.001) or await", "sent", 1),
        ("[first, second, started]", "[second, first, started]", "finished", 0),
        ("[first, second, started]", "import os\nos.abort()", "finished", 0),
        ("import time\n", "import time\nimport random\nawait git.git_log(i=random.random())\n", "printed", 0),
    ],
)
async def test_changed_script_diverges_where_it_first_does_another_thing(
    sandbox: Sandbox, recorded: Recorder, old: str, new: str, kind: str, nth: int
) -> None:
    _, record = await recorded(SCRIPT, limits=Limits(cpu_seconds=0.5))
    assert old in record.script
    error = await diverged(sandbox, changed(record, script=record.script.replace(old, new)))
    at = index_of(record, kind, nth)
    assert (error.index, error.expected) == (at, str(record.events[at]))
    assert error.got != error.expected


async def test_changed_answer_diverges_where_it_shows(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT)
    at = index_of(record, "answered")
    answer = record.events[at]
    assert answer.kind == "answered"
    forged = Event("answered", answer.text.replace('"chance":0.', '"chance":1.'))
    events = (*record.events[:at], forged, *record.events[at + 1 :])
    assert (await diverged(sandbox, changed(record, events=events))).index == index_of(record, "sent", 1)


async def test_run_that_was_stopped_ends_where_it_was_stopped(sandbox: Sandbox, recorded: Recorder) -> None:
    """Nobody knows what it would have done next."""
    _, record = await recorded(SCRIPT)
    stopped = Event("stopped", "", 7, RunError("wall_limit", "too long"))
    at = index_of(record, "sent")
    result = await replay(sandbox, changed(record, events=(*record.events[:at], stopped)), where)
    assert result.error == stopped.error
    assert (result.stdout, result.stdout_bytes_dropped) == ("begin\n", 7)


async def test_beginning_of_a_run_ends_where_it_would_go_on(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT)
    for length in range(1, len(record.events)):
        with pytest.raises(RecordError):
            await replay(sandbox, changed(record, events=record.events[:length]), where)


async def test_record_of_another_component_is_refused(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT)
    other = changed(record, origin=changed(record.origin, component="0" * 64))
    with pytest.raises(RecordError) as raised:
        await replay(sandbox, other, where)
    assert "0" * 12 in str(raised.value)
    assert sandbox.component[:12] in str(raised.value)


async def test_replay_whose_worker_is_killed_says_so(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded("await git.git_log()", limits=Limits(cpu_seconds=60))
    repetition = Repetition(record)
    async with sandbox.run(record.limits, where, recording=repetition) as run:
        await run.prepare(record.script, record.namespaces)
        assert run.worker is not None
        run.worker.kill("by a test")
        assert record.settings is not None
        await run.execute({}, EchoPort())
    with pytest.raises(ReplayInterruptedError):
        repetition.check()
