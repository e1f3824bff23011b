"""Turns HTTP responses and exceptions into errors, and finds out whether a server has lost the session."""

import re
from http import HTTPStatus
from typing import Final

import httpx2
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, JSONRPCRequest

from manifests.json_value import Json
from upstreams import errors
from upstreams.redaction import Redaction
from upstreams.transports.http_credentials import REFUSED_ALONE, challenge_of, is_unauthorized
from upstreams.transports.messages import is_answer_to, parsed

SESSION_HEADER: Final = "mcp-session-id"
_TEXTS: Final = ("text/plain", "application/json", "")
"""The media types whose beginning is shown; "" for none."""

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


def kind_of(response: httpx2.Response) -> str:
    """The media type of a response, or ""."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def error_of(
    response: httpx2.Response, body: bytes, redact: Redaction, request: JSONRPCRequest
) -> errors.UpstreamError | None:
    """The error of a status, with the beginning of the body; None if a JSON-RPC answer in the body says more."""
    answer = _json_rpc_answer(response, body)
    if answer is not None and "result" in answer:
        return None
    if b'"result"' in body:
        fault = f"{status_line(response)}, with a result that is incomplete or unreadable"
        return errors.UpstreamAnswerError(fault)
    error = answer["error"] if answer else {}
    text = str(error["message"]).encode() if error else body
    answered = request if answer and is_answer_to(request.id, answer.get("id")) else None
    session = response.request.headers.get(SESSION_HEADER, "")
    words = text.decode("utf-8", "replace")
    if lost := lost_session(response.status_code, words, session, error.get("code"), answered):
        return lost(f"no longer knows this session: {status_error(response, text, redact)}")
    # For these statuses the status says more about whether the server acted, and what to do.
    is_busy = response.status_code == HTTPStatus.TOO_MANY_REQUESTS
    if answer is None or response.is_server_error or is_busy or is_unauthorized(response):
        return status_error(response, text, redact)
    return None


def status_error(response: httpx2.Response, body: bytes, redact: Redaction) -> errors.UpstreamError:
    """The error of a status, with an excerpt of the body."""
    message, remedy = status_line(response), status_remedy(response)
    if body and kind_of(response) in _TEXTS and not body.lstrip().startswith(b"<"):
        message += f": {redact.excerpt(body)}"
    is_absent = response.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
    if is_absent and response.request.url.path in ("", "/"):
        # A server at the root would answer with JSON-RPC.
        remedy = "most servers are at a path: /mcp, or /sse with `transport: sse`"
    is_forbidden = response.status_code == HTTPStatus.FORBIDDEN
    if is_forbidden and (scope := challenge_of(response).get("scope")):
        shown = redact.excerpt(scope.encode())
        message += f"; it requires the scope {shown!r}"
        remedy = f"add {shown!r} to `oauth.scope`, and sign in again"
    text = response.headers.get("retry-after", "").strip()
    after_seconds = float(text) if re.fullmatch(r"\d{1,9}", text) else None
    if after_seconds is not None:
        message += f"; it asks to wait {after_seconds:.0f} s"
    if response.next_request is not None:
        # A redirect of a POST may mean that the request was carried out.
        message += f": a redirect to {response.next_request.url}, which would drop the call"
        return errors.UpstreamAnswerError(message, remedy="use that URL if the server has moved there")
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return errors.UpstreamBusyError(message, after_seconds=after_seconds)
    if is_unauthorized(response):
        alone = response.extensions.get(REFUSED_ALONE)
        kind = errors.UpstreamRightsError if alone else errors.UpstreamUnauthorizedError
        return kind(message, remedy=remedy)
    # A gateway may answer 502 or 504 after the server acted; a 4xx is the server's own refusal.
    if not response.is_client_error:
        return errors.UpstreamFaultError(message, after_seconds=after_seconds)
    return errors.UpstreamRefusedError(message, remedy=remedy)


def status_line(response: httpx2.Response) -> str:
    """The status, and its likely cause if one is known."""
    why = ""
    if response.extensions.get(REFUSED_ALONE):
        why = "; other requests with the same credentials are accepted"
    elif response.status_code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        why = "; the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY wants other credentials"
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip() + why


def status_remedy(response: httpx2.Response) -> str:
    """What the operator can do about a status; "" if nothing is known."""
    status, request = response.status_code, response.request
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and not response.extensions.get(
        REFUSED_ALONE
    ):
        return "check `headers` or `oauth` in the manifest"
    asked = request.method, request.url.path.rstrip("/")[-4:]
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        if asked == ("POST", "/sse"):
            return "a server with the old HTTP+SSE transport needs `transport: sse` in the manifest"
        if asked == ("GET", "/mcp"):
            return "a server with Streamable HTTP needs no `transport: sse` in the manifest"
    return ""


def _json_rpc_answer(response: httpx2.Response, body: bytes) -> dict[str, Json] | None:
    """The JSON-RPC result or error in a body, if it is complete."""
    if kind_of(response) != "application/json":
        return None
    try:
        answer = parsed(body)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    error = answer.get("error")
    is_error = isinstance(error, dict) and isinstance(error.get("code"), int) and "message" in error
    return answer if is_error or isinstance(answer.get("result"), dict) else None


def lost_session(
    status: int, text: str, session: str, code: int | None = None, answered: JSONRPCRequest | None = None
) -> type[errors.UpstreamError] | None:
    """The class of the error if the server refuses a request because it has lost the session.

    None if it is about something else, or the request had no session. `code` is the JSON-RPC error code. `answered` is
    the request if the error has its id, so the server has parsed it. docs/upstreams.md, "Lost sessions", has the table.
    After an UpstreamForgottenError the call is sent again; after an UpstreamSessionError the next has a new session.

    An error names the session by its id, or by the words above. With the request's id it may be a tool's own error.

    Source: MCP 2025-11-25, basic/transports#session-management.
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
        return errors.UpstreamForgottenError
    is_gone = status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE) and code not in _ABOUT_THE_CALL
    return errors.UpstreamSessionError if says_so or is_gone else None
