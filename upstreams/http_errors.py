"""What an HTTP response says that is an error."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import httpx2
from mcp_types import JSONRPCError
from pydantic import ValidationError

from upstreams.errors import (
    UpstreamBusyError,
    UpstreamError,
    UpstreamFaultError,
    UpstreamRefusedError,
    UpstreamSessionError,
    UpstreamStillUnauthorizedError,
    UpstreamUnauthorizedError,
)
from upstreams.http_credentials import IS_RENEWED
from upstreams.http_status import status_line
from upstreams.scrubber import Scrubber
from upstreams.sent_text import asked_id
from upstreams.steps import in_steps
from upstreams.wire_text import mended

_SESSION_HEADER: Final = "mcp-session-id"
_DAY_SECONDS: Final = 86_400.0
_TELLING_STATUSES: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)
# What the TypeScript SDK's transport answers with, before it looks at the message.
_TRANSPORT_CODES: Final = (-32000, -32001)
_NO_SESSION: Final = re.compile(
    rb"\b(?:no valid|unknown|missing|invalid|expired) (?:mcp[- ])?session[- ]?id\b|\bmcp-session-id header is required"
)


def kind_of(response: httpx2.Response) -> str:
    """Its media type; empty when it has none."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def error_of(
    response: httpx2.Response, body: bytes, scrub: Scrubber, *, is_whole: bool
) -> UpstreamError | None:
    """What it means, of a body or the beginning of one; None if that is a JSON-RPC error which says all."""
    error = await _json_rpc_error(kind_of(response), body) if is_whole else None
    if _has_lost_session(response, error, body):
        return UpstreamSessionError("no longer knows this session")
    if error is None or _says_more_than_its_body(response):
        return refusal(response, error.error.message.encode() if error else body, scrub)
    return None


def refusal(response: httpx2.Response, body: bytes, scrub: Scrubber) -> UpstreamError:
    """The error that its status stands for, with what it says."""
    message = status_line(response)
    if body and kind_of(response) in ("text/plain", "application/json"):
        message += f": {scrub.excerpt(body)}"
    after_seconds = _asked_wait(response)
    if after_seconds is not None:
        message += f"; it asks to wait {after_seconds:.0f} s"
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return UpstreamBusyError(message, after_seconds=after_seconds)
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        is_renewed = response.extensions.get(IS_RENEWED, False)
        return (UpstreamStillUnauthorizedError if is_renewed else UpstreamUnauthorizedError)(message)
    # A gateway may say 502 or 504 after the server acted; a 4xx is the server's own no.
    if response.is_server_error:
        return UpstreamFaultError(message, after_seconds=after_seconds)
    return UpstreamRefusedError(message)


async def _json_rpc_error(kind: str, body: bytes) -> JSONRPCError | None:
    if kind != "application/json":
        return None
    try:
        return JSONRPCError.model_validate_json(await in_steps(mended(body)))
    except ValidationError:
        return None


def _says_more_than_its_body(response: httpx2.Response) -> bool:
    """Whether the status says what may have happened, or what to do, and a JSON-RPC error would not."""
    return response.is_server_error or response.status_code in _TELLING_STATUSES


def _asked_wait(response: httpx2.Response) -> float | None:
    """Seconds, from a Retry-After in either of its forms; at most a day."""
    text = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", text):
        return min(float(text), _DAY_SECONDS)
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the latter for a time zone out of all bounds
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return min(max(0.0, (then - datetime.now(UTC)).total_seconds()), _DAY_SECONDS)


def _has_lost_session(response: httpx2.Response, error: JSONRPCError | None, body: bytes) -> bool:
    """The specification says 404; servers built on the TypeScript examples say 400 and what is wrong.

    The call is sent again then, so nothing that a tool says of sessions of its own may pass for it.
    """
    if _SESSION_HEADER not in response.request.headers:
        return False
    is_missing = response.status_code == HTTPStatus.NOT_FOUND
    if not is_missing and response.status_code != HTTPStatus.BAD_REQUEST:
        return False
    is_of_transport = error is not None and error.error.code in _TRANSPORT_CODES
    says_session = error is not None and "session" in error.error.message.lower()
    if error is not None and error.id is not None and error.id == asked_id(response.request.content):
        # Whoever knows the request's id has read it. Some transports do before they look for the session.
        return is_missing and is_of_transport and says_session
    if is_missing:
        return True
    if is_of_transport and error is not None and error.id is None:
        return says_session
    return _NO_SESSION.search(body[:2000].lower()) is not None
