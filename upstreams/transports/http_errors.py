"""Turns HTTP responses and exceptions into errors."""

import re
from http import HTTPStatus
from typing import Final

import httpx2
from mcp_types import JSONRPCRequest

from manifests.json_value import Json
from upstreams import errors
from upstreams.redaction import Redaction
from upstreams.transports.http_credentials import REFUSED_ALONE, challenge_of, is_unauthorized
from upstreams.transports.lost_sessions import lost_session
from upstreams.transports.messages import is_answer_to, parsed

SESSION_HEADER: Final = "mcp-session-id"
_DAY_SECONDS: Final = 86_400.0
_TEXTS: Final = ("text/plain", "application/json", "")
"""The media types whose beginning is shown; "" for none."""


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
    is_forbidden = response.status_code == HTTPStatus.FORBIDDEN
    if is_forbidden and (scope := challenge_of(response).get("scope")):
        shown = redact.excerpt(scope.encode())
        message += f"; it requires the scope {shown!r}"
        remedy = f"add {shown!r} to `oauth.scope`, and sign in again"
    text = response.headers.get("retry-after", "").strip()
    after_seconds = min(float(text), _DAY_SECONDS) if re.fullmatch(r"\d{1,9}", text) else None
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
