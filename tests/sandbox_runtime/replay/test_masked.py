"""A record without secrets is enough to go on from: what the script does is compared with its secrets masked."""

from collections.abc import Callable
from dataclasses import replace as changed

import pytest

from manifests.json_value import Json
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.errors import DivergenceError, RecordError
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.guest_json import parse
from sandbox_runtime.recording import Event, Record
from sandbox_runtime.replay import Repetition, resume
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import RECORD, Recorder, facts, kept
from tests.sandbox_runtime.running import EchoPort, answering, where

pytestmark = pytest.mark.anyio

SECRET = "hunter2-hunter2"
GRANTS = RunGrants(environment={"TOKEN": SECRET, "STAGE": "test"})
SCRIPT = """\
import os
token = os.environ["TOKEN"]
first = await git.git_log(token=token, i=1)
print("sent", token)
second = await git.git_log(token=token, i=2)
[first, second, os.environ["STAGE"]]
"""


def mask(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


async def number(call: ToolCall) -> Outcome:
    return Outcome(call.arguments["i"])


def journaled(record: Record) -> Record:
    """The record as a journal keeps it."""
    hidden = masked(record, mask).without_environment()
    assert SECRET.encode() not in RECORD.dump_json(hidden)
    return kept(hidden)


def masked(record: Record, mask: Callable[[str], str]) -> Record:
    return changed(record, events=tuple(event.masked(mask) for event in record.events))


async def test_run_goes_on_from_its_masked_record(sandbox: Sandbox, recorded: Recorder) -> None:
    result, record = await recorded(SCRIPT, port=number, grants=GRANTS)
    assert result is not None
    assert result.value == [1, 2, "test"]
    for length in range(len(record.events)):
        seen: list[Json] = []

        async def see(call: ToolCall, seen: list[Json] = seen) -> Outcome:
            seen.append(call.arguments["token"])
            return await number(call)

        kept = journaled(record.until(length)).with_environment(GRANTS.environment)
        repetition = Repetition(kept, goes_on=True, mask=mask)
        again = await resume(sandbox, repetition, where, see, unanswered=see)
        assert facts(again) == facts(result)
        assert set(seen) <= {SECRET}
        whole = repetition.record
        assert whole is not None
        assert whole.settings == record.settings
        assert [e for e in journaled(whole).events if e.kind in ("sent", "printed")] == [
            e for e in journaled(record).events if e.kind in ("sent", "printed")
        ]


async def test_other_calls_than_the_masked_ones_diverge_without_secrets(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    _, record = await recorded(SCRIPT, port=number, grants=GRANTS)
    kept = journaled(record.until(len(record.events) - 1)).with_environment(GRANTS.environment)
    other = changed(kept, script=SCRIPT.replace("i=1", "i=7"))
    with pytest.raises(DivergenceError) as raised:
        await resume(sandbox, Repetition(other, goes_on=True, mask=mask), where, number)
    assert "[hidden]" in raised.value.got
    assert SECRET not in str(raised.value)
    with pytest.raises(DivergenceError):
        await resume(sandbox, Repetition(kept, goes_on=True), where, number)


async def test_secret_that_became_known_later_is_no_divergence(sandbox: Sandbox, recorded: Recorder) -> None:
    script = f'await git.git_log(a="known-before", b="{SECRET}")\nawait git.git_log(i=2)'
    _, record = await recorded(script)
    sent = next(index for index, event in enumerate(record.events) if event.kind == "sent")

    def before(text: str) -> str:
        return text.replace("known-before", "[hidden]")

    kept = masked(record.until(sent + 1), before)
    assert SECRET in kept.events[sent].text
    repetition = Repetition(kept, goes_on=True, mask=lambda text: mask(before(text)))
    result = await resume(sandbox, repetition, where, EchoPort(), unanswered=EchoPort())
    assert (result.error, result.value) == (None, {"i": 2})


async def test_answer_with_a_secret_is_masked_after_resuming(sandbox: Sandbox, recorded: Recorder) -> None:
    script = "a = await git.git_log()\nawait git.git_log()\na"
    _, record = await recorded(script, port=answering(SECRET))
    answered = next(index for index, event in enumerate(record.events) if event.kind == "answered")
    repetition = Repetition(journaled(record.until(answered + 1)), goes_on=True, mask=mask)
    result = await resume(sandbox, repetition, where, answering(1))
    assert result.value == "[hidden]"


@pytest.mark.parametrize("kind", ["clock", "emitted", "finished", "resumed"])
def test_events_without_text_of_the_script_are_not_masked(kind: str) -> None:
    event = Event(kind, SECRET)  # type: ignore[arg-type]  # one of its literals
    assert event.masked(mask) is event
    assert Event("printed", SECRET).masked(mask).text == "[hidden]"


async def test_environment_is_that_of_the_present(recorded: Recorder) -> None:
    _, record = await recorded("1", grants=GRANTS)

    def environment(record: Record) -> Json:
        assert record.settings is not None
        settings = parse(record.settings.encode())
        assert isinstance(settings, dict)
        return settings["environment"]

    bare = record.without_environment()
    assert environment(bare) == {"TOKEN": "", "STAGE": ""}
    assert bare.with_environment(GRANTS.environment) == record
    assert environment(bare.with_environment({"STAGE": "live", "NEW": "1"})) == {"STAGE": "live"}


async def test_record_without_environment_stays_as_it_is(recorded: Recorder) -> None:
    _, ran = await recorded("1")
    _, parsed = await recorded("1", grants=GRANTS, executes=False)
    for record in (ran, parsed):
        assert record.without_environment() is record.with_environment({"A": "1"}) is record
    with pytest.raises(RecordError):
        changed(ran, settings='{"environment":').without_environment()
