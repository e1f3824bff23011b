"""Parses JSON-RPC messages of upstreams leniently, and enforces limits on them."""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from mcp.shared.dispatcher import as_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic_core import from_json

from manifests.json_value import Json
from upstreams.errors import UpstreamAnswerError, UpstreamArgumentError, UpstreamCutOffError, UpstreamError
from upstreams.health import Diagnostics

UNSOLICITED_AT_ONCE: Final = 10_000.0
UNSOLICITED_PER_SECOND: Final = 1_000.0
BYTES_PER_UNIT: Final = 4096
"""A token bucket for unsolicited messages and noise. Each counts one unit, and one more per 4 KiB."""

REQUEST_UNITS: Final = 20
"""Cost of a request from the upstream: the SDK takes about a millisecond for each."""

STRAY_ANSWER_UNITS: Final = 1_000
"""Cost of an answer without a waiting request: it may have the full length of a message."""

MAX_REQUEST_BYTES: Final = 500_000
"""Limit of one request from the upstream: the SDK validates each value in it, which blocks the event loop."""

MAX_BUFFERED_MESSAGES: Final = 4
"""Incomplete messages of full length in memory, over all requests of one connection."""

MAX_CONTAINERS: Final = 2_000_000
"""Lists and objects in one message. Building so many takes about 150 ms and 150 MB."""

_MAX_ERROR_CHARACTERS: Final = 10_000


class TokenBucket:
    """Limits a rate: `burst` units at once, and `per_second` after that."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst = self._tokens = burst
        self._per_second = per_second
        self._as_of = anyio.current_time()

    def take(self, units: float = 1.0) -> bool:
        """Take this many units if they are available. Returns whether they were."""
        now = anyio.current_time()
        self._tokens = min(self._burst, self._tokens + (now - self._as_of) * self._per_second)
        self._as_of = now
        is_there = units <= self._tokens
        self._tokens -= units * is_there
        return is_there


class InboundLimits:
    """Limits of one connection: bytes per message, bytes of all incomplete messages, and unsolicited messages.

    Beyond a limit the caller closes the connection (`UpstreamCutOffError`).
    """

    def __init__(self, message_bytes: int) -> None:
        self.message_bytes = message_bytes
        self._buffered_bytes = 0
        self._unsolicited = TokenBucket(UNSOLICITED_AT_ONCE, UNSOLICITED_PER_SECOND)

    def take_unsolicited(self, units: float) -> None:
        """Count unsolicited messages or lines. Raises UpstreamCutOffError: too many."""
        if not self._unsolicited.take(units):
            raise UpstreamCutOffError(
                f"sent more unsolicited messages or small chunks than {UNSOLICITED_PER_SECOND:.0f} a second "
                f"and {UNSOLICITED_AT_ONCE:.0f} at once"
            )

    def check_message(self, size_bytes: int) -> None:
        """Raises UpstreamCutOffError if a message, or its received part, is too long."""
        if size_bytes > self.message_bytes:
            raise UpstreamCutOffError(
                f"sent a message of more than {self.message_bytes} bytes (message_bytes)"
            )

    @contextmanager
    def buffering(self) -> Iterator[Callable[[int], None]]:
        """A context for reading one of several concurrent messages; yields a function to call with each chunk's length.

        The function raises UpstreamAnswerError if this message, or all of them together, are too long.
        """
        held_bytes = 0

        def add(count: int) -> None:
            nonlocal held_bytes
            held_bytes += count
            self._buffered_bytes += count
            if held_bytes > self.message_bytes:
                raise UpstreamAnswerError(
                    f"sent a message of more than {self.message_bytes} bytes (message_bytes)"
                )
            if self._buffered_bytes > MAX_BUFFERED_MESSAGES * self.message_bytes:
                raise UpstreamAnswerError(
                    f"sent concurrent answers of more than {MAX_BUFFERED_MESSAGES} times "
                    f"{self.message_bytes} bytes (message_bytes): make fewer large calls at once"
                )

        try:
            yield add
        finally:
            self._buffered_bytes -= held_bytes


@dataclass(frozen=True)
class MessageReader:
    """Parses text into messages. Other text is noted in the diagnostics; a broken answer becomes its call's error.

    It does not use the SDK's union adapter, which takes 180 ms instead of 45 ms for 16 MiB of rows and blocks the event
    loop (`python -m benchmarks.large_answers`).
    """

    limits: InboundLimits
    diagnostics: Diagnostics
    mask: Callable[[Json, bytes], Json]
    """Masks secrets in a value, which is parsed from the text."""

    def read(self, text: bytes) -> list[SessionMessage]:
        """Parse one message or a batch.

        Raises:
            ValueError: It is not JSON, or has too many values.
            UpstreamCutOffError: Too many unsolicited messages, or too long a request.
        """
        value = self.mask(parsed(text), text)
        members = value if isinstance(value, list) else [value]
        read = [message for each in members if (message := self._message(each)) is not None]
        size_units = len(text) // BYTES_PER_UNIT
        if len(read) < len(members):
            self._note("not a JSON-RPC message", text)
            self.limits.take_unsolicited(len(members) - len(read) + size_units)
        for message in read:
            if isinstance(message, JSONRPCRequest):
                if len(text) > MAX_REQUEST_BYTES:
                    raise UpstreamCutOffError(f"sent a request of more than {MAX_REQUEST_BYTES} bytes")
                self.limits.take_unsolicited(REQUEST_UNITS + size_units)
            elif isinstance(message, JSONRPCNotification):
                self.limits.take_unsolicited(1 + size_units)
        return [SessionMessage(message) for message in read]

    def read_leniently(self, text: bytes) -> list[SessionMessage]:
        """Parse a line or event of a shared stream, skipping noise. Raises UpstreamCutOffError: too much."""
        start = text.find(b"{")
        # Some servers print a banner or a spinner before a message, on the same line.
        for part in (text, text[start:]) if start > 0 else (text,):
            try:
                return self.read(part)
            except ValueError as error:
                problem = str(error)
        self.limits.take_unsolicited(1 + len(text) // BYTES_PER_UNIT)
        if b'"jsonrpc"' in text:
            raise UpstreamCutOffError(f"sent an unreadable message: {problem}")
        if text.strip():
            self._note("not JSON", text)
        return []

    def read_answer(
        self, text: bytes, request_id: RequestId, status: str = ""
    ) -> JSONRPCResponse | JSONRPCError:
        """The answer in an HTTP body. Raises UpstreamAnswerError: it is not an answer, or answers another request.

        The id may be missing. An error may have any id: the Python SDK 1.x refuses with "server-error" before it reads
        the request. Such an error is reported with the HTTP `status`.
        """
        try:
            messages = self.read(text)
        except ValueError as error:
            raise UpstreamAnswerError(f"the answer is unreadable: {error}") from None
        answer = messages[0].message if messages else None
        if not isinstance(answer, JSONRPCResponse | JSONRPCError):
            raise UpstreamAnswerError("the answer is not a JSON-RPC response")
        if not is_answer_to(request_id, answer.id):
            if isinstance(answer, JSONRPCError):
                message = f"{status}: {answer.error.message}" if status else answer.error.message
                told = answer.error.model_copy(update={"message": message})
                answer = answer.model_copy(update={"error": told})
            elif answer.id is not None:
                raise UpstreamAnswerError("the answer belongs to another request")
        return answer.model_copy(update={"id": request_id})

    def _note(self, what: str, text: bytes) -> None:
        self.diagnostics.note(f"sent text that is {what}: {self.diagnostics.redact.excerpt(text[:4096])!r}")

    def _message(self, value: Json) -> JSONRPCMessage | None:
        if not isinstance(value, dict):
            return None
        request_id = _request_id(value.get("id"))
        method, params = value.get("method"), value.get("params")
        if isinstance(method, str):
            params = params if isinstance(params, dict) else None
            if request_id is None:
                return JSONRPCNotification.model_construct(jsonrpc="2.0", method=method, params=params)
            return JSONRPCRequest.model_construct(jsonrpc="2.0", id=request_id, method=method, params=params)
        if value.get("error") is not None:
            return JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=_error(value["error"]))
        if "result" not in value or (request_id is None and value.get("jsonrpc") != "2.0"):
            return None
        if not isinstance(value["result"], dict):
            excerpt = self.diagnostics.redact.excerpt(_text(value["result"]).encode())
            return failed_answer(request_id, UpstreamAnswerError(f"the answer is not an object: {excerpt}"))
        # An answer in an HTTP body may lack an id: `read_answer` fills it in.
        return JSONRPCResponse.model_construct(jsonrpc="2.0", id=request_id, result=value["result"])


def parsed(text: bytes) -> Json:
    """Parse JSON that may have a BOM, lone surrogates or invalid UTF-8 (both become U+FFFD).

    Raises ValueError: it is not JSON, or has more lists and objects than `MAX_CONTAINERS`.
    """
    if len(text) > MAX_CONTAINERS and text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:
        raise ValueError(f"more than {MAX_CONTAINERS} lists and objects")
    try:
        return from_json(text.removeprefix(BOM_UTF8))
    except ValueError as error:
        if (repaired := _repaired(text)) is None:
            raise
        problem = error
    try:
        return from_json(repaired)
    except ValueError:
        raise problem from None


def _repaired(text: bytes) -> bytes | None:
    """The same JSON in valid UTF-8; None if it cannot be repaired. JavaScript that cuts an emoji leaves a surrogate."""
    if text.isascii() and rb"\ud" not in text and rb"\uD" not in text:
        return None
    try:
        value = json.loads(text.removeprefix(BOM_UTF8).decode("utf-8", "replace"))
        plain = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def known_handshake(result: dict[str, Json]) -> dict[str, Json]:
    """The fields of an initialize result that the portal needs. Invalid other fields are ignored."""
    known: dict[str, Json] = {}
    known |= {key: result[key] for key in ("protocolVersion", "capabilities", "serverInfo") if key in result}
    if isinstance(info := known.get("serverInfo"), dict):
        version = info.get("version")
        known["serverInfo"] = {"name": info.get("name"), "version": "" if version is None else str(version)}
    if isinstance(instructions := result.get("instructions"), str):
        known["instructions"] = instructions
    return known


def encoded(message: JSONRPCMessage) -> bytes:
    """The message as JSON. Raises UpstreamArgumentError: a value cannot be serialized, such as a lone surrogate."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError as error:
        raise UpstreamArgumentError(f"the arguments cannot be sent as JSON: {error}") from None


def failed_answer(request_id: RequestId | None, failure: UpstreamError) -> JSONRPCError:
    """An answer that carries a failure through the SDK, which passes only JSON-RPC errors; see `failure_of`."""
    error = ErrorData.model_construct(code=INTERNAL_ERROR, message=str(failure), data=failure)
    return JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=error)


def failure_of(error: ErrorData) -> UpstreamError | None:
    """The failure in a `failed_answer`. No upstream can forge one, because upstreams send JSON."""
    return error.data if isinstance(error.data, UpstreamError) else None


def is_answer_to(request_id: RequestId, answered: Json) -> bool:
    """Whether this is the request's id; servers also send it as text or as 1.0."""
    return str(_request_id(answered)) == str(request_id)


def _request_id(value: Json) -> RequestId | None:
    return int(value) if isinstance(value, float) and value.is_integer() else as_request_id(value)


def _error(value: Json) -> ErrorData:
    if not isinstance(value, dict):
        return ErrorData(code=INTERNAL_ERROR, message=_text(value))
    code, message = value.get("code"), value.get("message")
    return ErrorData(
        code=code if isinstance(code, int) else INTERNAL_ERROR,
        message=message if isinstance(message, str) else _text(value),
        data=value.get("data"),
    )


def _text(value: Json) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:_MAX_ERROR_CHARACTERS]
