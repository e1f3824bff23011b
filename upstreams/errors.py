"""What can go wrong between a call and its upstream.

    UpstreamError
    ├── UpstreamUnavailableError        the call never left the portal
    │   ├── UpstreamUnreadError         because the server does not read its stdin
    │   ├── UpstreamDownError           and will not before the upstream is back
    │   │   └── UpstreamNeedsLoginError     or before somebody signs in to it
    │   └── UpstreamCircuitOpenError    because it failed too often lately
    ├── UpstreamWithheldError           the caller itself kept it back at the last moment
    ├── UpstreamArgumentError           the arguments cannot be sent; neither did this call
    ├── UpstreamTimeoutError            sent, no answer within its deadline: it may have acted
    ├── UpstreamLostError               sent, then the connection ended: it may have acted
    ├── UpstreamAnswerError             answered with something unreadable: it may have acted
    │   ├── UpstreamFaultError          answered with HTTP 5xx, it or a gateway before it: it may have acted
    │   └── UpstreamCutOffError         sent more than the portal takes: its connection was closed
    ├── UpstreamIncompleteError            asked for more input, and did not come to an end then: it may have acted
    │   └── UpstreamUnansweredError     because nobody answered within the call's deadline
    └── UpstreamRefusedError            answered with an error of its own, of JSON-RPC or HTTP
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

_CHECK_FIRST = "Check the effect before retrying: the call may have happened."


class UpstreamError(Exception):
    """A call to an upstream did not give a result. `Upstream.call` scrubs the message of configured secrets.

    `rpc_code` is that of a JSON-RPC error, `after_seconds` what the upstream asked to wait (`Retry-After`).
    """

    code: ClassVar[str] = "upstream_error"
    hint: ClassVar[str] = ""
    outcome: ClassVar[CallOutcome] = "unknown"
    repetition: ClassVar[Repetition] = "never"

    def __init__(
        self, message: str, *, rpc_code: int | None = None, after_seconds: float | None = None
    ) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…")
        self.rpc_code = rpc_code
        self.after_seconds = after_seconds


class UpstreamUnavailableError(UpstreamError):
    code = "upstream_unavailable"
    hint = "Nothing was sent. Other upstreams still work; try this one again later."
    outcome = "not_started"
    repetition: ClassVar[Repetition] = "always"


class UpstreamUnreadError(UpstreamUnavailableError):
    pass


class UpstreamDownError(UpstreamUnavailableError):
    repetition = "never"


class UpstreamNeedsLoginError(UpstreamDownError):
    """The message says with which command to sign in."""

    code = "upstream_needs_login"
    hint = "Nothing was done. Tell the operator to run the command that the message names."


class UpstreamCircuitOpenError(UpstreamUnavailableError):
    code = "circuit_open"
    hint = "Nothing was sent. Other upstreams still work; try this one again when the message says."
    repetition = "never"


class UpstreamWithheldError(UpstreamError):
    """What `on_sent` of a call raises so that it is not sent. A call that was sent before ends as it ended then."""

    outcome = "not_started"


class UpstreamArgumentError(UpstreamError):
    code = "upstream_argument"
    hint = "Send text without half surrogate pairs, such as a text cut inside an emoji."
    outcome = "not_started"


class UpstreamTimeoutError(UpstreamError):
    code = "upstream_timeout"
    hint = _CHECK_FIRST


class UpstreamLostError(UpstreamError):
    code = "upstream_lost"
    hint = _CHECK_FIRST
    repetition = "if_safe"


class UpstreamAnswerError(UpstreamError):
    code = "upstream_answer"
    hint = _CHECK_FIRST


class UpstreamFaultError(UpstreamAnswerError):
    repetition = "if_safe"


class UpstreamCutOffError(UpstreamAnswerError):
    """All calls under way end with it, and the circuit opens."""


class UpstreamIncompleteError(UpstreamError):
    """The call is not sent again: from its beginning it would be another one, perhaps with other answers."""

    code = "upstream_halfway"
    hint = "Check the effect before retrying: the call was begun and may have happened in part."


class UpstreamUnansweredError(UpstreamIncompleteError):
    code = "question_unanswered"
    hint = (
        "Whoever was asked took too long: have it answered sooner, or have the operator raise this upstream's"
        " `call_seconds` (and `limits.wall_seconds`). Check the effect before retrying: the call was begun."
    )


class UpstreamRefusedError(UpstreamError):
    code = "upstream_refused"
    hint = "The upstream rejected the call itself; change the call rather than repeat it."
    outcome = "failed"


class UpstreamBusyError(UpstreamRefusedError):
    code = "upstream_busy"
    hint = "The upstream limits its callers. Make fewer calls at once, or try again later."
    repetition = "always"


class UpstreamUnauthorizedError(UpstreamRefusedError):
    """The connection is opened anew, with credentials as they are then, and the call is sent once more."""

    code = "upstream_unauthorized"
    hint = "The portal's credentials for this upstream are missing, wrong or expired: tell the operator."
    repetition: ClassVar[Repetition] = "always"
