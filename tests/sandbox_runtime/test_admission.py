"""What the rules for calls say to lines of a guest, and how answers are limited: without a worker."""

from collections.abc import Collection

import pytest

from manifests.grants import Limits
from sandbox_runtime import admission
from sandbox_runtime.admission import Admission, GuestCall
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.calls import Answers
from sandbox_runtime.frames import MAX_LINES_BYTES, FrameError
from sandbox_runtime.grants.files import NOT_GRANTED
from sandbox_runtime.guest_json import parse
from sandbox_runtime.result import Bounds
from tests.sandbox_runtime.running import where

SMALL = Limits(tool_calls=4, parallel_calls=2, argument_bytes=10, outcome_bytes=20)


def admitting(limits: Limits = SMALL, answered: Collection[int] = ()) -> Admission:
    return Admission(Bounds(limits, where), answered)


def codes(rules: Admission, batch: bytes) -> list[str]:
    """The code of each call's refusal, "" if it is admitted."""
    refusals = [rules.admit(call) for call in rules.read(batch) if call.arguments and call.seq]
    return [refusal.code if refusal else "" for refusal in refusals]


def started(rules: Admission) -> list[int]:
    return [call.identity for call in iter(rules.start, None)]


@pytest.mark.parametrize(
    ("forged", "honest"),
    [
        (b"x a.b {}", b"1 a.b {}"),
        (b"1234567890123456 a.b {}", b"123456789012345 a.b {}"),
        (b"1 a.b", b"1 a.b ~"),
        (b"1 a.b {}\n1 a.b {}", b"1 a.b {}\n2 a.b {}"),
        (b"2 a.b {}\n1 a.b {}", b"2 a.b {}\n30 a.b {}"),
        (b"1 " + b"f" * 2049 + b" {}", b"1 " + b"f" * 2048 + b" {}"),
        (b"1", b"1 a.b {}\n1"),
        (b"1 a.b {}\n1\n1", b"1 a.b {}\n2 a.b {}\n1\n2"),
        (b"1 portal.files.stat {}\n2 portal.files.stat {}", b"1 portal.files.stat {}\n2 a.b {}"),
        (b"1 portal.files.stat {}\n1", b"1 portal.files.stat {}"),
        (b"1 a.b {}\n" + b" " * MAX_LINES_BYTES, b"1 a.b " + b" " * MAX_LINES_BYTES),
    ],
)
def test_lines_that_no_honest_guest_sends_are_violations(forged: bytes, honest: bytes) -> None:
    with pytest.raises(FrameError):
        list(admitting().read(forged))
    assert list(admitting().read(honest))


@pytest.mark.parametrize(
    ("batch", "refusals"),
    [
        (b"1 a.b {}\n2 a.b {}\n3 a.b {}\n4 a.b {}\n5 a.b {}", ["", "", "", "", "tool_calls_limit"]),
        (b"1 a.b " + b"x" * 10 + b"\n2 a.b " + b"x" * 11, ["", "argument_limit"]),
        (b"1 a.b !900\n2 a.b !\n3 a.b ~", ["argument_limit", "", ""]),
    ],
)
def test_call_over_a_limit_is_refused_by_its_code(batch: bytes, refusals: list[str]) -> None:
    assert codes(admitting(), batch) == refusals


def test_calls_start_in_order_as_others_end_and_not_if_they_are_cancelled() -> None:
    rules = admitting(Limits(tool_calls=9, parallel_calls=2))
    calls = list(rules.read(b"\n".join(b"%d a.b {}" % number for number in range(1, 6))))
    assert [rules.admit(call) for call in calls] == [None] * 5
    assert started(rules) == [1, 2]
    assert list(rules.read(b"3")) == [GuestCall(3)]
    rules.end(calls[0])
    assert started(rules) == [4]


def test_calls_with_recorded_answers_count_and_do_not_start() -> None:
    rules = admitting(answered={1, 2})
    refusals = codes(rules, b"1 a.b {}\n2 a.b {}\n3 a.b {}\n4 a.b {}\n5 a.b {}")
    assert refusals == ["", "", "", "", "tool_calls_limit"]
    assert started(rules) == [3, 4]
    list(rules.read(b"6 portal.files.stat {}"))
    assert rules.file == GuestCall(6, "stat", b"{}")


def test_arguments_of_calls_in_flight_have_a_limit_together_that_ends_and_cancellations_free() -> None:
    rules = admitting(Limits(tool_calls=99, parallel_calls=1, argument_bytes=10))
    lines = [b"%d a.b " % number + b"x" * 10 for number in range(1, 35)]
    assert codes(rules, b"\n".join(lines[:33])) == [""] * 32 + ["argument_limit"]
    first = rules.start()
    list(rules.read(b"2"))
    assert first is not None
    rules.end(first)
    more = b"\n".join(b"%d a.b " % number + b"x" * 10 for number in (40, 41, 42))
    assert codes(rules, more) == ["", "", "argument_limit"]


@pytest.mark.parametrize("line", ["a.b {}", "portal.files.stat {}"])
def test_guest_that_goes_on_after_thousands_of_refusals_is_stopped(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(admission, "MAX_REFUSED", 3)
    rules = admitting(Limits(tool_calls=0))
    for number in range(1, 4):
        list(rules.read(f"{number} {line}".encode()))
        rules.end_file(is_refused=True)
    with pytest.raises(admission.TooManyCallsError):
        list(rules.read(f"4 {line}".encode()))


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b"{", "argument_error"),
        (b"[" + b"0," * 3000 + b"0]", "argument_limit"),
    ],
)
def test_arguments_are_json_of_few_values(arguments: bytes, found: object) -> None:
    parsed = admitting(Limits(argument_bytes=20_000)).arguments(GuestCall(1, "a.b", arguments, 1))
    assert (parsed.code if isinstance(parsed, CallError) else parsed) == found


@pytest.mark.parametrize(
    ("outcome", "answer", "withheld"),
    [
        (Outcome([1]), [7, 1, [1]], ""),
        (Outcome(text=b"[2]"), [7, 1, [2]], ""),
        (Outcome("x" * 18), [7, 1, "x" * 18], ""),
        (Outcome("x" * 19), [7, 0, "outcome_limit"], "outcome_limit"),
        (Outcome(1, content=["x" * 30], beside=()), [7, 1, 1, ["x" * 30], []], ""),
        (Outcome(1, content=["x" * 30], beside=(0,)), [7, 0, "outcome_limit"], "outcome_limit"),
        (Outcome(error=CallError("c", "m", "h")), [7, 0, "c", "m", "h"], ""),
        (Outcome(error=CallError("c", "m"), data={"a": 1}), [7, 0, "c", "m", "", {"a": 1}, None], ""),
        (Outcome(error=CallError("c", "m"), data="x" * 30), [7, 0, "c", "m"], ""),
    ],
)
def test_answer_has_the_outcome_or_says_that_it_is_over_the_limit(
    outcome: Outcome, answer: list[object], withheld: str
) -> None:
    answers = Answers(Bounds(SMALL, where), ["earlier"])
    error = answers.add(7, outcome)
    [sent] = parse(b"[%b]" % answers.take())
    assert (sent[: len(answer)], error.code if error else "") == (answer, withheld)
    is_over = bool(withheld) or outcome.data == "x" * 30
    assert ((where("outcome_bytes") in str(sent)), answers.take()) == (is_over, b"")
    assert answers.error_codes == {"earlier", answer[2] if answer[1] == 0 else "earlier"}


def test_refused_file_operation_is_an_answer_with_a_code_that_the_run_may_end_with() -> None:
    answers = Answers(Bounds(SMALL, where))
    answers.add(1, Outcome())
    answers.add_file(2, NOT_GRANTED)
    assert [answer[:3] for answer in parse(b"[%b]" % answers.take())] == [[1, 1, None], [2, 0, "not_granted"]]
    assert "not_granted" in answers.error_codes
