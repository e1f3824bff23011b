"""Turns HTTP responses and exceptions into errors."""

import re
from http import HTTPStatus
from typing import Final

import httpx2
from mcp.client.auth.utils import extract_scope_from_www_auth

from manifests.json_value import Json
from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamFaultError,
    UpstreamRefusedError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
)
from upstreams.redaction import Redaction
from upstreams.transports.messages import parsed

SESSION_HEADER: Final = "mcp-session-id"
_DAY_SECONDS: Final = 86_400.0
_SESSION_NOT_FOUND: Final = -32001  # of the TypeScript SDK's transport
_NO_SESSION: Final = re.compile(
    rb"\b(?:no valid|unknown|missing|invalid|expired) (?:mcp[- ])?session[- ]?id\b|\bmcp-session-id header is required"
    rb"|\bsession not found\b"
)


def kind_of(response: httpx2.Response) -> str:
    """The media type of a response, or ""."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def error_of(response: httpx2.Response, body: bytes, redact: Redaction) -> UpstreamError | None:
    """The error of a status, with the beginning of the body; None if a JSON-RPC answer in the body says more."""
    answer = _json_rpc_answer(response, body)
    if answer is not None and "result" in answer:
        return None
    if b'"result"' in body:
        return UpstreamAnswerError(f"{status_line(response)}, with a result that is incomplete or unreadable")
    if _has_lost_session(response, answer, body):
        return UpstreamUnavailableError("no longer knows this session")
    # For these statuses the status says more about whether the server acted, and what to do.
    says_more = response.is_server_error or response.status_code in (
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.TOO_MANY_REQUESTS,
    )
    if answer is None or says_more:
        return status_error(response, str(answer["error"]["message"]).encode() if answer else body, redact)
    return None


def status_error(response: httpx2.Response, body: bytes, redact: Redaction) -> UpstreamError:
    """The error of a status, with an excerpt of the body."""
    message = status_line(response)
    if body and kind_of(response) in ("text/plain", "application/json"):
        message += f": {redact.excerpt(body)}"
    is_forbidden = response.status_code == HTTPStatus.FORBIDDEN
    if is_forbidden and (scope := extract_scope_from_www_auth(response)):
        shown = redact.excerpt(scope.encode())
        message += f"; it requires the scope {shown!r}: add it to `oauth.scope`, and sign in again"
    text = response.headers.get("retry-after", "").strip()
    after_seconds = min(float(text), _DAY_SECONDS) if re.fullmatch(r"\d{1,9}", text) else None
    if after_seconds is not None:
        message += f"; it asks to wait {after_seconds:.0f} s"
    if response.next_request is not None:
        # A redirect of a POST may mean that the request was carried out.
        message += f": a redirect to {response.next_request.url}, which would drop the call"
        return UpstreamAnswerError(f"{message}; use that URL if the server has moved there")
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return UpstreamBusyError(message, after_seconds=after_seconds)
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        return UpstreamUnauthorizedError(message)
    # A gateway may answer 502 or 504 after the server acted; a 4xx is the server's own refusal.
    if not response.is_client_error:
        return UpstreamFaultError(message, after_seconds=after_seconds)
    return UpstreamRefusedError(message)


def status_line(response: httpx2.Response) -> str:
    """The status, and a possible cause in the manifest."""
    status, request = response.status_code, response.request
    hint = ""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = "; check `headers` or `oauth` in the manifest"
    elif status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        asked = request.method, request.url.path.rstrip("/")[-4:]
        if asked == ("POST", "/sse"):
            hint = "; a server with the old HTTP+SSE transport needs `transport: sse` in the manifest"
        elif asked == ("GET", "/mcp"):
            hint = "; a server with Streamable HTTP needs no `transport: sse` in the manifest"
    return f"HTTP {status} {response.reason_phrase}".rstrip() + hint


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


def _has_lost_session(response: httpx2.Response, answer: dict[str, Json] | None, body: bytes) -> bool:
    """Whether the server has lost the session: 404 by the specification, 400 and a text for the TypeScript examples.

    The call is then sent again, so a tool's own message about sessions must not match.
    """
    is_missing = response.status_code == HTTPStatus.NOT_FOUND
    is_bad = response.status_code == HTTPStatus.BAD_REQUEST
    if SESSION_HEADER not in response.request.headers or not (is_missing or is_bad):
        return False
    says_so = _NO_SESSION.search(body[:2000].lower()) is not None
    if answer is not None and answer.get("id") is not None:
        # The id shows that the server parsed the request. Some transports do so before they check the session.
        return is_missing and says_so and answer["error"]["code"] == _SESSION_NOT_FOUND
    return is_missing or says_so


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
