"""What can go wrong between a call and its upstream.

    UpstreamError
    ├── UpstreamUnavailableError   the call never left the portal
    ├── UpstreamArgumentError      the arguments cannot be sent; neither did this call
    ├── UpstreamTimeoutError       sent, no answer within its deadline: it may have acted
    ├── UpstreamLostError          sent, then the connection ended: it may have acted
    ├── UpstreamAnswerError        answered with something unreadable: it may have acted
    └── UpstreamRefusedError       answered with an error of its own

`outcome` is what the ledger may say about the call: only `unknown` needs a look before a retry.
"""

from typing import ClassVar, Literal

CallOutcome = Literal["not_started", "failed", "unknown"]

_MAX_MESSAGE = 2_000


class UpstreamError(Exception):
    """A call to an upstream did not give a result. The message is scrubbed of configured secrets."""

    code: ClassVar[str] = "upstream_error"
    hint: ClassVar[str] = ""
    outcome: ClassVar[CallOutcome] = "unknown"

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…")


class UpstreamUnavailableError(UpstreamError):
    """The upstream is down, stopped, or did not start in time; nothing was sent."""

    code = "upstream_unavailable"
    hint = "Nothing was sent. Other upstreams still work; try this one again later."
    outcome = "not_started"


class UpstreamArgumentError(UpstreamError):
    """The caller's arguments are no JSON that UTF-8 can carry; nothing was sent."""

    code = "upstream_argument"
    hint = "Send text without half surrogate pairs, such as a text cut inside an emoji."
    outcome = "not_started"


class UpstreamTimeoutError(UpstreamError):
    """The upstream did not answer within the call's deadline; it may still have acted."""

    code = "upstream_timeout"
    hint = "Check the effect before retrying: the call may have happened."


class UpstreamLostError(UpstreamError):
    """The connection ended between the call and its answer; the upstream may have acted."""

    code = "upstream_lost"
    hint = "Check the effect before retrying: the call may have happened."


class UpstreamAnswerError(UpstreamError):
    """The upstream answered, but not with a readable result; it may have acted."""

    code = "upstream_answer"
    hint = "Check the effect before retrying: the call may have happened."


class UpstreamRefusedError(UpstreamError):
    """The upstream answered with an error of the protocol (JSON-RPC) or of HTTP."""

    code = "upstream_refused"
    hint = "The upstream rejected the call itself; change the call rather than repeat it."
    outcome = "failed"

    def __init__(self, message: str, *, rpc_code: int | None = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code
