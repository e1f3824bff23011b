"""A call is sent again only where that is safe and may help."""

from collections.abc import Iterable

import anyio
import pytest

from manifests.json_value import Json
from manifests.names import ToolNames
from manifests.portal_manifest import RetryRules, may_repeat
from upstreams.errors import (
    UpstreamBusyError,
    UpstreamDownError,
    UpstreamError,
    UpstreamFaultError,
    UpstreamLostError,
    UpstreamRefusedError,
    UpstreamTimeoutError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
)
from upstreams.tools import MISSING, ToolResult
from upstreams.upstream import with_retries

pytestmark = pytest.mark.anyio

RESULT = ToolResult([], MISSING, is_error=False)


class Sequence:
    """An upstream that fails in this order and then answers."""

    def __init__(self, failures: Iterable[UpstreamError]) -> None:
        self.failures = list(failures)
        self.attempts = 0

    async def __call__(self) -> ToolResult:
        self.attempts += 1
        if self.failures:
            raise self.failures.pop(0)
        return RESULT


async def outcome(*failures: UpstreamError, is_safe: bool, attempts: int = 3, seconds: float = 30) -> object:
    """How many attempts were made, and the error's class if the last of them failed."""
    upstream = Sequence(failures)
    deadline = anyio.current_time() + seconds
    try:
        await with_retries(upstream, attempts=attempts, is_safe=lambda: is_safe, deadline=deadline)
    except UpstreamError as error:
        return upstream.attempts, type(error)
    return upstream.attempts


@pytest.mark.parametrize("error", [UpstreamLostError("cut"), UpstreamFaultError("HTTP 502")])
async def test_call_that_may_have_acted_is_repeated_only_if_that_is_safe(error: UpstreamError) -> None:
    assert await outcome(error, is_safe=True) == 2
    assert await outcome(error, is_safe=False) == (1, type(error))


@pytest.mark.parametrize(
    "error", [UpstreamUnavailableError("stale"), UpstreamUnauthorizedError("401"), UpstreamBusyError("429")]
)
async def test_call_that_certainly_did_nothing_is_sent_again_in_any_case(error: UpstreamError) -> None:
    assert await outcome(error, is_safe=False) == 2


@pytest.mark.parametrize(
    "error", [UpstreamRefusedError("no"), UpstreamTimeoutError("late"), UpstreamDownError("down")]
)
async def test_what_would_fail_again_is_not_repeated(error: UpstreamError) -> None:
    assert await outcome(error, is_safe=True) == (1, type(error))


async def test_credentials_and_connections_are_renewed_once() -> None:
    refused = [UpstreamUnauthorizedError("401"), UpstreamUnauthorizedError("401")]
    assert await outcome(*refused, is_safe=True) == (2, UpstreamUnauthorizedError)
    dead = [UpstreamUnavailableError("stale"), UpstreamUnavailableError("stale")]
    assert await outcome(*dead, is_safe=True) == (2, UpstreamUnavailableError)


async def test_wait_that_the_upstream_asks_for_beyond_the_deadline_is_not_waited() -> None:
    busy = UpstreamBusyError("429", after_seconds=3600)
    assert await outcome(busy, is_safe=True) == (1, UpstreamBusyError)
    assert await outcome(UpstreamBusyError("429", after_seconds=0.01), is_safe=True) == 2


NAMES = ToolNames("my-bank", "my_bank", "get-it", "get_it")


@pytest.mark.parametrize(
    ("rules", "annotations", "allowed"),
    [
        ({}, {"readOnlyHint": True}, True),
        ({}, {"idempotentHint": True}, True),
        ({}, {"readOnlyHint": True, "destructiveHint": False}, True),
        ({}, {"readOnlyHint": True, "destructiveHint": True}, False),
        ({}, {"idempotentHint": True, "destructiveHint": True}, True),
        ({}, {}, False),
        ({}, {"readOnlyHint": "yes", "idempotentHint": 1}, False),
        ({}, {"destructiveHint": False}, False),
        ({"allow": ("get_*",)}, {}, True),
        ({"allow": ("get_*",)}, {"readOnlyHint": True, "destructiveHint": True}, True),
        ({"allow": ("set_*",)}, {}, False),
        ({"deny": ("*",)}, {"readOnlyHint": True}, False),
        ({"allow": ("*",), "deny": ("get_i?",)}, {}, False),
        ({"attempts": 1}, {"readOnlyHint": True}, True),
        *(({"deny": (name,)}, {"readOnlyHint": True}, False) for name in NAMES.current),
        *(({"allow": (name,)}, {}, True) for name in NAMES.current),
        ({"allow": ("bank.get_it", "my_bank.get-it")}, {}, False),
    ],
)
def test_annotations_and_the_manifest_decide(
    rules: dict[str, Json], annotations: dict[str, Json], allowed: bool
) -> None:
    assert may_repeat(RetryRules.model_validate(rules), NAMES, annotations) is allowed
