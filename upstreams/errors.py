"""What can go wrong between a call and its upstream.

    UpstreamError
    ├── UpstreamUnavailableError        the call never left the portal
    │   ├── UpstreamSessionError        because the upstream does not know the session
    │   ├── UpstreamUnreadError         because the server does not read its stdin
    │   ├── UpstreamDownError           and will not before the upstream is back
    │   │   └── UpstreamNeedsLoginError     or before somebody signs in to it
    │   └── UpstreamCircuitOpenError    because it failed too often lately
    ├── UpstreamWithheldError           the caller itself kept it back at the last moment
    ├── UpstreamArgumentError           the arguments cannot be sent; neither did this call
    ├── UpstreamTimeoutError            sent, no answer within its deadline: it may have acted
    ├── UpstreamLostError               sent, then the connection ended: it may have acted
    ├── UpstreamAnswerError             answered with something unreadable: it may have acted
    │   ├── UpstreamFaultError          answered with HTTP 5xx: it may have acted
    │   ├── UpstreamCutOffError         sent more than the portal takes: its connection was closed
    │   └── UpstreamSilentError         took the call and sends no answer: it may act yet
    ├── UpstreamHalfwayError            asked for more input, and did not come to an end then: it may have acted
    │   └── UpstreamUnansweredError     because nobody answered in time
    └── UpstreamRefusedError            answered with an error of its own
        ├── UpstreamBusyError           with HTTP 429: not now
        └── UpstreamUnauthorizedError   with HTTP 401: not with these credentials

`outcome` is what the ledger may say about the call: only `unknown` needs a look before a retry.
"""

from typing import ClassVar, Literal

CallOutcome = Literal["not_started", "failed", "unknown"]

Repetition = Literal["never", "if_safe", "always"]
"""Whether the same call can fare better when it is sent again: `if_safe` only if it is idempotent."""

_MAX_MESSAGE = 65_536
"""Bounds what is kept. What is told is shorter, and scrubbed before it is cut."""


class UpstreamError(Exception):
    """A call to an upstream did not give a result. `Upstream.call` scrubs the message of configured secrets."""

    code: ClassVar[str] = "upstream_error"
    hint: ClassVar[str] = ""
    outcome: ClassVar[CallOutcome] = "unknown"
    repetition: ClassVar[Repetition] = "never"

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…")


class UpstreamUnavailableError(UpstreamError):
    """The call was not sent: the connection turned out to be dead, or did not come about in time."""

    code = "upstream_unavailable"
    hint = "Nothing was sent. Other upstreams still work; try this one again later."
    outcome = "not_started"
    repetition: ClassVar[Repetition] = "always"


class UpstreamSessionError(UpstreamUnavailableError):
    """The upstream does not know the session any more, and did nothing."""


class UpstreamUnreadError(UpstreamUnavailableError):
    """The server closed its stdin, or reads no more of it: it certainly did not get all of the call."""


class UpstreamDownError(UpstreamUnavailableError):
    """The upstream is down or stopped, and a call now would not change that."""

    repetition = "never"


class UpstreamNeedsLoginError(UpstreamDownError):
    """Somebody has to sign in to the upstream; the message says with which command. It did nothing."""

    code = "upstream_needs_login"
    hint = "Nothing was done. Tell the operator to run the command that the message names."


class UpstreamCircuitOpenError(UpstreamUnavailableError):
    """The upstream failed too often in a row; until the next try its callers are answered at once."""

    code = "circuit_open"
    hint = "Nothing was sent. Other upstreams still work; try this one again when the message says."
    repetition = "never"


class UpstreamWithheldError(UpstreamError):
    """What `on_sent` of a call raises so that it is not sent. A call that was sent before ends as it ended then."""

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
    repetition = "if_safe"


class UpstreamAnswerError(UpstreamError):
    """The upstream answered, but not with a readable result; it may have acted."""

    code = "upstream_answer"
    hint = "Check the effect before retrying: the call may have happened."


class UpstreamFaultError(UpstreamAnswerError):
    """The upstream, or a gateway before it, answered with HTTP 5xx; it may have acted.

    `after_seconds` is what it asked to wait (`Retry-After`); None where it said nothing.
    """

    repetition = "if_safe"

    def __init__(self, message: str, *, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class UpstreamCutOffError(UpstreamAnswerError):
    """The upstream sent a message over `message_bytes`, or too many messages that nobody asked for.

    Its connection was closed, with all calls under way, and the circuit is open.
    """


class UpstreamSilentError(UpstreamAnswerError):
    """The upstream took the request and says that no answer will come (HTTP 202)."""


class UpstreamHalfwayError(UpstreamError):
    """The upstream asked for more input, so it had begun; whatever went wrong after that, it may have acted.

    The call is not sent again: from its beginning it would be another one, perhaps with other answers.
    """

    code = "upstream_halfway"
    hint = "Check the effect before retrying: the call was begun and may have happened in part."


class UpstreamUnansweredError(UpstreamHalfwayError):
    """The person or model that the upstream asked had not answered at the call's deadline; it may have acted."""

    code = "question_unanswered"
    hint = (
        "Whoever was asked took too long: have it answered sooner, or have the operator raise this upstream's"
        " `call_seconds` (and `limits.wall_seconds`). Check the effect before retrying: the call was begun."
    )


class UpstreamRefusedError(UpstreamError):
    """The upstream answered with an error of the protocol (JSON-RPC) or of HTTP."""

    code = "upstream_refused"
    hint = "The upstream rejected the call itself; change the call rather than repeat it."
    outcome = "failed"

    def __init__(self, message: str, *, rpc_code: int | None = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code


class UpstreamBusyError(UpstreamRefusedError):
    """The upstream wants fewer calls (HTTP 429); it did nothing. `after_seconds` as above."""

    code = "upstream_busy"
    hint = "The upstream limits its callers. Make fewer calls at once, or try again later."
    repetition = "always"

    def __init__(self, message: str, *, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class UpstreamUnauthorizedError(UpstreamRefusedError):
    """The upstream does not take the portal's credentials (HTTP 401), perhaps no longer; it did nothing.

    The connection is opened anew, with credentials as they are then, and the call is sent once more.
    """

    code = "upstream_unauthorized"
    hint = "The portal's credentials for this upstream are missing, wrong or expired: tell the operator."
    repetition: ClassVar[Repetition] = "always"


def asked_to_wait(error: BaseException | None) -> float | None:
    """The seconds that the upstream wants to be left alone, if it said so."""
    return error.after_seconds if isinstance(error, UpstreamFaultError | UpstreamBusyError) else None
