"""Errors on their way to their calls: claimed once, and none kept without end."""

from mcp.shared.exceptions import MCPError

from upstreams.errors import UpstreamAnswerError
from upstreams.wire import MAX_CARRIED, Failures


def carried(failures: Failures, problem: str) -> MCPError:
    data = failures.carry(UpstreamAnswerError(problem))
    return MCPError(code=data.code, message=data.message, data=data.data)


def test_error_is_claimed_once() -> None:
    failures = Failures()
    error = carried(failures, "unreadable")
    assert str(failures.claim(error)) == "unreadable"
    assert failures.claim(error) is None


def test_oldest_that_nobody_claims_are_forgotten() -> None:
    failures = Failures()
    errors = [carried(failures, str(number)) for number in range(MAX_CARRIED + 10)]
    claimed = [failures.claim(error) for error in errors]
    assert claimed[:10] == [None] * 10
    assert [str(error) for error in claimed[10:]] == [str(number) for number in range(10, MAX_CARRIED + 10)]
