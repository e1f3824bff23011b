"""Whether a server refuses a request because it has lost the session.

| refusal of a request with a session id | the call |
|---|---|
| 404 whose JSON-RPC id, if any, is not the request's | is sent again on a new session, as the specification says |
| 400 of that kind that names the session; 404 with the request's id, -32001 and such words | is sent again |
| any other 404 or 410, unless its code is about the call (`_ABOUT_THE_CALL`) | fails; the next has a new session |
| any other error that names the session, also with HTTP 200; not 401 and 429 | fails; the next has a new session |

An error names the session by its id, or by the words below. With the request's id it may be a tool's own error. So
words do not count if the call itself is about sessions, nor words about a "checkout session". A wrong guess costs a
handshake and the state that the server kept in the session.

Source: MCP 2025-11-25, basic/transports#session-management.
"""

import re
from http import HTTPStatus
from typing import Final

from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, JSONRPCRequest

from upstreams.errors import UpstreamError, UpstreamSessionError, UpstreamUnavailableError

_SESSION_NOT_FOUND: Final = -32001  # of the TypeScript SDK's transport
_RESOURCE_NOT_FOUND: Final = -32002
_ABOUT_THE_CALL: Final = (METHOD_NOT_FOUND, INVALID_PARAMS, _RESOURCE_NOT_FOUND)

_IS_GONE: Final = (
    r"(?:not|n't) (?:be )?(?:found|exist|valid|known|active|available|initiali[sz]ed|recogni[sz]ed)|unknown|invalid"
    r"|expired|stale|inactive|revoked|unrecogni[sz]ed|terminated|closed|ended|gone|lost|missing|required|deleted"
    r"|evicted|timed out|no longer"
)
_SAYS_SO: Final = re.compile(
    r"\b(?:no|not an?|find|unknown|invalid|expired|missing|stale|unrecogni[sz]ed|inactive|terminated)"
    r"(?: (?:or|an?|the|valid|active|such|known|existing|missing|expired|unknown|transport|found|for|mcp))*"
    r" (?:mcp[- ])?session(?! (?:cookie|file|name|token|key))|"
    r"(?:^|[^\w\s-]\s*|\b(?:mcp|http|the|this|that|your|current|given|provided|requested)[ -])session(?:[- ]?id)?"
    r"(?: with(?: the)? id)?(?:(?: |: ?|=)[`'\"<(\[]*[\w.:-]+[`'\">)\]]*)?[: ,]*"
    rf"(?:\b(?:is|was|has|been|do|does|did|could|can|ca|wo|be) ?)*(?:{_IS_GONE})"
    r"|\bmcp-session-id header is required|\b(?:server|connection|transport)(?: is| was)? not (?:yet )?initiali[sz]ed"
)
_WORD_BREAK: Final = re.compile(r"_|(?<=[a-z])(?=[A-Z])")
_MAX_CHARACTERS: Final = 2_000


def lost_session(
    status: int, text: str, session: str, code: int | None = None, answered: JSONRPCRequest | None = None
) -> type[UpstreamError] | None:
    """The class of a refusal's error; None if it is about something else, or the request had no session.

    `code` is the JSON-RPC error code. `answered` is the request if the error has its id, so the server has parsed it.
    """
    if not session or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS):
        return None
    may_be_tools = answered is not None and "session" in str(answered.params).lower()
    words = "" if may_be_tools else _WORD_BREAK.sub(" ", text[:_MAX_CHARACTERS]).lower()
    says_so = session in text or _SAYS_SO.search(words) is not None
    is_for_sure = answered is None or (says_so and code == _SESSION_NOT_FOUND)
    if (status == HTTPStatus.NOT_FOUND and is_for_sure) or (
        status == HTTPStatus.BAD_REQUEST and answered is None and says_so
    ):
        return UpstreamUnavailableError
    is_gone = status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE) and code not in _ABOUT_THE_CALL
    return UpstreamSessionError if says_so or is_gone else None
