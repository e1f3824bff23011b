"""Errors of a call to an upstream.

    UpstreamError
    ├── UpstreamUnavailableError        the call was not sent
    │   ├── UpstreamUnreadError         the server does not read its stdin
    │   ├── UpstreamForgottenError      the server forgot the session before it read the call
    │   ├── UpstreamDownError           the upstream is down
    │   │   └── UpstreamNeedsLoginError     a person has to sign in
    │   └── UpstreamCircuitOpenError    the circuit breaker is open
    ├── UpstreamCallerError             the call needs a person who signed in; it was not sent
    │   ├── UpstreamSignInError         the person has to sign in at the upstream
    │   └── UpstreamClaimError          the person lacks a claim that a header names
    ├── UpstreamWithheldError           the caller withheld it at the last moment
    ├── UpstreamArgumentError           the arguments cannot be serialized; the call was not sent
    ├── UpstreamTimeoutError            sent, no answer within the deadline: it may have acted
    ├── UpstreamLostError               sent, then the connection ended: it may have acted
    ├── UpstreamAnswerError             the answer is unreadable: it may have acted
    │   ├── UpstreamFaultError          HTTP 5xx from the upstream or a gateway: it may have acted
    │   └── UpstreamCutOffError         it sent more than a limit allows: its connection was closed
    ├── UpstreamIncompleteError         it asked for more input, and the call did not complete: it may have acted
    │   └── UpstreamUnansweredError     the request for input was not answered within the call's deadline
    └── UpstreamRefusedError            it answered with a JSON-RPC or HTTP error
        ├── UpstreamInternalError       its own failure, or so it says: the call may be wrong
        ├── UpstreamPageError           a person has to open a page first
        ├── UpstreamSessionError        it no longer knows the session
        ├── UpstreamBusyError           HTTP 429: try again later
        ├── UpstreamUnauthorizedError   HTTP 401: the credentials are not accepted
        └── UpstreamRightsError         HTTP 401, although the same credentials are accepted for other calls

`outcome` is the call's state in the ledger. Only `unknown` requires checking before a retry.
"""

import re
from typing import ClassVar, Final, Literal

from manifests.json_value import Json

CallOutcome = Literal["not_started", "failed", "unknown"]

Repetition = Literal["never", "if_safe", "always"]
"""Whether a retry may succeed: `if_safe` only if the call is idempotent."""

_MAX_MESSAGE = 65_536
"""Characters that are stored. The reported text is shorter, and masked before it is cut."""

_CHECK_FIRST = "Check the effect before retrying: the call may have happened."


class UpstreamError(Exception):
    """A call to an upstream has no result. `Upstream.call` masks configured secrets in the message.

    `rpc_code` is the code of a JSON-RPC error, `data` its data, `after_seconds` the `Retry-After` of the upstream.
    The message says what went wrong, and scripts see it; `remedy` says what to do, and only the operator sees it.
    """

    code: ClassVar[str] = "upstream_error"
    hint: ClassVar[str] = ""
    outcome: ClassVar[CallOutcome] = "unknown"
    repetition: ClassVar[Repetition] = "never"

    def __init__(
        self,
        message: str,
        *,
        rpc_code: int | None = None,
        after_seconds: float | None = None,
        data: Json = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…")
        self.rpc_code = rpc_code
        self.after_seconds = after_seconds
        self.data = data
        self.remedy = remedy


class UpstreamUnavailableError(UpstreamError):
    code = "upstream_unavailable"
    hint = "Nothing was sent. Other upstreams still work; try this one again later."
    outcome = "not_started"
    repetition: ClassVar[Repetition] = "always"


class UpstreamUnreadError(UpstreamUnavailableError):
    pass


class UpstreamForgottenError(UpstreamUnavailableError):
    pass


class UpstreamDownError(UpstreamUnavailableError):
    hint = "Nothing was sent. Others still work. `mcp-code-portal check` tells the operator what to do."
    repetition = "never"


class UpstreamNeedsLoginError(UpstreamDownError):
    """The message names the command to sign in with."""

    code = "upstream_needs_login"


class UpstreamCallerError(UpstreamError):
    code = "sign_in_needed"
    hint = "Nothing was sent. Sign in at the portal's identity provider: its static tokens name no person."
    outcome = "not_started"


class UpstreamSignInError(UpstreamCallerError):
    """The message has the link."""

    hint = "Nothing was sent. Show the person the link in the message, and run the script again after the sign-in."


class UpstreamClaimError(UpstreamCallerError):
    code = "no_claim"
    hint = "Nothing was sent. Tell the operator: the identity provider has to put the claim into its tokens."


class UpstreamCircuitOpenError(UpstreamUnavailableError):
    code = "circuit_open"
    hint = "Nothing was sent. Other upstreams still work; try this one again at the time in the message."
    repetition = "never"


class UpstreamWithheldError(UpstreamError):
    """Raised by `on_sent` to stop a call from being sent. A call that was sent before keeps its earlier outcome."""

    outcome = "not_started"


class UpstreamArgumentError(UpstreamError):
    code = "upstream_argument"
    hint = "Send text without lone surrogates, which come from cutting text inside an emoji."
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
    """The upstream broke a limit: its calls in flight fail, and the circuit opens."""


class UpstreamIncompleteError(UpstreamError):
    """The call is not retried: started again, it would be a different call, perhaps with other answers."""

    code = "upstream_halfway"
    hint = "Check the effect before retrying: the call was started and may have happened in part."


class UpstreamUnansweredError(UpstreamIncompleteError):
    code = "question_unanswered"
    hint = (
        "The answer took too long. Answer sooner, or ask the operator for more time. Check the effect before retrying:"
        " the call was started."
    )


class UpstreamRefusedError(UpstreamError):
    code = "upstream_refused"
    hint = "The upstream rejected the call. Change the call instead of repeating it."
    outcome = "failed"


class UpstreamInternalError(UpstreamRefusedError):
    hint = (
        "The upstream failed while it handled the call. If its text is about an argument, pass another one; else try"
        " again later, or tell the operator."
    )


class UpstreamPageError(UpstreamRefusedError):
    hint = (
        "The upstream wants the person to open a page first. Show them the address, say who asks for it, and repeat the"
        " call once they have been there."
    )


_ABOUT_THE_CALL: Final = (-32600, -32601, -32602, -32002)
_NETWORK_FAILURE: Final = re.compile(
    r"fetch failed|\bE(?:CONNREFUSED|CONNRESET|NOTFOUND|TIMEDOUT|HOSTUNREACH|NETUNREACH|AI_AGAIN|PIPE)\b|getaddrinfo"
    r"|connection (?:refused|reset)|(?:network|host) is unreachable|name or service not known|name resolution"
    r"|socket hang up",
    re.IGNORECASE,
)


def is_network_failure(text: str) -> bool:
    """Whether an upstream's text reports that its own backend was unreachable. Only the stored part is searched."""
    return _NETWORK_FAILURE.search(text[:_MAX_MESSAGE]) is not None  # searching 16 MiB takes two seconds


def kind_of_refusal(code: int, message: str) -> type[UpstreamRefusedError]:
    """The class of a JSON-RPC error. Only codes about the call, and those of HTTP 4xx, blame the call."""
    if code == -32042:  # URLElicitationRequiredError
        return UpstreamPageError
    blames = (code in _ABOUT_THE_CALL or 400 <= code < 500) and not is_network_failure(message)
    return UpstreamRefusedError if blames else UpstreamInternalError


class UpstreamSessionError(UpstreamRefusedError):
    """The server may have lost the session. The next call uses a new one; this one is retried only if idempotent."""

    hint = "The upstream forgot its session, and what it kept in it. Repeat the call: the next one has a new session."
    repetition = "if_safe"


class UpstreamBusyError(UpstreamRefusedError):
    code = "upstream_busy"
    hint = "The upstream has a rate limit. Make fewer calls at once, or try again later."
    repetition = "always"


class UpstreamUnauthorizedError(UpstreamRefusedError):
    """The portal reconnects with the current credentials and retries the call once."""

    code = "upstream_unauthorized"
    hint = "The portal's credentials for this upstream are missing, wrong or expired. Tell the operator."
    repetition: ClassVar[Repetition] = "always"


class UpstreamRightsError(UpstreamRefusedError):
    """Neither new credentials nor a new connection help."""

    code = "upstream_unauthorized"
    hint = "The upstream accepts the portal's credentials for other calls, but not for this one. Tell the operator."


def describe(error: BaseException) -> str:
    """An error in one line for people, without the URL, which may contain a key."""
    if isinstance(error, UpstreamError):
        return str(error)
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    first_line = (str(error).splitlines() or [""])[0]
    return f"{kind}: {first_line}" if first_line else kind


def cause_of(error: BaseException) -> BaseException:
    """The most useful error of a group: an UpstreamError if there is one."""
    if isinstance(error, BaseExceptionGroup):
        error = error.subgroup(UpstreamError) or error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
