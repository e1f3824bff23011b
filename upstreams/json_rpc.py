"""Reads what upstreams send into JSON-RPC messages, leniently: lines of a stdio server, and what is long on HTTP."""

import json
from collections.abc import Iterator
from typing import Final, TypeAlias

from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from pydantic_core import from_json

from manifests.json_value import Json
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamAnswerError
from upstreams.json_pieces import read_json, without_collection
from upstreams.json_size import has_too_many_values, is_larger
from upstreams.last_object import last_object
from upstreams.masking import Mask
from upstreams.nesting import says_too_deep, without_deep_tools
from upstreams.piled_text import PiledText
from upstreams.steps import STEP_BYTES, STEP_ITEMS, Steps, last_place
from upstreams.unasked_bytes import MeasuredMessage
from upstreams.wire import Failures
from upstreams.wire_text import END_BYTES, answered_id, mended

_MOST_TOLD: Final = 10_000
_GLANCED_AT: Final = 4 * STEP_ITEMS
"""Values of a batch, in one step."""

_MAX_ON_A_LINE: Final = 100
"""Objects that are looked for on a line that is no JSON."""

_MESSAGE_MARK: Final = b'"jsonrpc"'

Found: TypeAlias = Iterator[SessionMessage | None]
"""Messages, and None after each step of looking for them, for everybody else to have a turn."""


class MessageReader:
    """Turns text into messages. What is no message is noted; a broken answer becomes its call's error.

    Messages are built without the SDK's union adapter, which reads a large result four times over: 29 ms
    instead of 5 ms for 700 KB.
    """

    def __init__(self, failures: Failures, diagnostics: Diagnostics, mask: Mask) -> None:
        self._failures = failures
        self._mask = mask
        self._diagnostics = diagnostics
        self._excerpt = diagnostics.scrub.excerpt

    def read(self, line: bytes) -> Found:
        if len(line) <= STEP_BYTES and not line.strip():
            return
        try:
            value = yield from self._value(line)
        except ValueError as error:
            problem = UpstreamAnswerError(f"the answer is unreadable: {error}")
            place, messages = yield from self._last_messages(line)
            if place:
                # What an answer says last is no other's that it begins with.
                tail = b"" if messages else line[-END_BYTES:]
                yield from self._unreadable(line[: min(place, STEP_BYTES)], tail, problem)
            yield from messages
            return
        members = value if isinstance(value, list) else [value]
        number_of_members = len(members)
        objects = yield from _objects(members)
        is_noise = len(objects) < number_of_members
        for number, member in enumerate(objects):
            message = self._message(member)
            if message is None:
                is_noise = True
            else:
                yield MeasuredMessage(message, 0 if number else len(line))
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield None
        if is_noise:
            self._diagnostics.note(
                f"wrote to stdout what is no JSON-RPC message: {self._excerpt(line[:STEP_BYTES])!r}"
            )

    def message(self, text: bytes) -> Steps[JSONRPCMessage]:
        """The one message that an event is; its call's error where that cannot be read."""
        try:
            value = yield from self._value(text)
            message, problem = self._message(value), UpstreamAnswerError("the answer is no JSON-RPC message")
        except ValueError as error:
            message, problem = None, UpstreamAnswerError(f"the answer is unreadable: {error}")
        return message or self._broken_answer(answered_id(text[:END_BYTES], text[-END_BYTES:]), problem)

    def answer(self, text: bytes, request_id: int) -> Steps[JSONRPCResponse | JSONRPCError]:
        """What a request was answered with in a body: that names no other request, and perhaps none at all.

        Some servers that fail before they know the id say null, or a word.
        """
        try:
            value = yield from self._value(text)
        except ValueError as error:
            return self._broken_answer(request_id, UpstreamAnswerError(f"the answer is unreadable: {error}"))
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
        is_marked = isinstance(value, dict) and value.get("jsonrpc") == "2.0"
        if is_marked and not isinstance(_number(value.get("id")), int):
            value["id"] = request_id
        message = self._message(value)
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            problem = UpstreamAnswerError("the answer is no JSON-RPC response")
        elif _number(message.id) != request_id:
            problem = UpstreamAnswerError("the answer is that of another request")
        else:
            return message
        return self._broken_answer(request_id, problem)

    def too_long(self, head: bytes, problem: UpstreamAnswerError) -> Found:
        """The beginning of a line that is not read for that, and may never end."""
        yield from self._unreadable(head, b"", problem)

    def end_of_too_long(self, tail: bytes, problem: UpstreamAnswerError) -> Found:
        """The last bytes of such a line."""
        _, messages = yield from self._last_messages(tail)
        yield from messages
        if not messages and answered_id(b"", tail) is not None:
            yield from self._unreadable(b"", tail, problem)

    def _last_messages(self, line: bytes) -> Steps[tuple[int, list[MeasuredMessage]]]:
        """The messages at the end of a line that began as something else, a banner or half an answer, and their place.

        Several if a server's threads write one behind the other: what each ends with is no message of its own if all
        that stands before it are such objects, or no JSON.
        """
        objects: list[tuple[int, JSONRPCMessage | None]] = []
        end = len(line)
        if (yield from last_place(line, _MESSAGE_MARK)) >= 0:
            while end and len(objects) < _MAX_ON_A_LINE:
                place, value = yield from self._last_value(line, end)
                if value is None:
                    break
                # Without the mark it may be anything that a program prints in JSON.
                objects.append((place, self._message(value) if value.get("jsonrpc") == "2.0" else None))
                end = place
        if line.find(b"{", 0, end) >= 0:
            objects = objects[:1]
        messages = [message for _, message in reversed(objects) if message is not None]
        if not messages:
            return len(line), []
        measured = [MeasuredMessage(each, 0 if number else len(line)) for number, each in enumerate(messages)]
        return objects[-1][0], measured

    def _last_value(self, line: bytes, end: int) -> Steps[tuple[int, dict[str, Json] | None]]:
        """The object that ends there, if one does, and its place."""
        place = yield from last_object(line, before=end)
        if place < 0 or (place == 0 and end == len(line)):  # which is no JSON
            return place, None
        yield
        try:
            value = yield from self._value((yield from _part(line, place, end)))
        except ValueError:
            return place, None
        return place, value if isinstance(value, dict) else None

    def _value(self, line: bytes) -> Steps[Json]:
        """What it says, without credentials."""
        if (yield from has_too_many_values(line)):
            raise ValueError("more values than the portal reads")
        try:
            return (yield from read_json(line, self._read))
        except ValueError as error:
            if not says_too_deep(error):
                raise
        cut = yield from without_deep_tools(line)
        return (yield from read_json(cut, self._read))

    def _read(self, piece: bytes) -> Steps[Json]:
        piece = yield from self._mask(piece)
        try:
            return without_collection(from_json, piece)
        except ValueError:
            fit = yield from mended(piece)
            if fit is piece:
                raise
            return without_collection(from_json, fit)

    def _unreadable(self, head: bytes, tail: bytes, problem: UpstreamAnswerError) -> Found:
        request_id = answered_id(head[:END_BYTES], tail)
        if request_id is None:
            self._diagnostics.note(f"wrote to stdout what is no JSON: {self._excerpt(head[:STEP_BYTES])!r}")
        else:
            yield SessionMessage(self._broken_answer(request_id, problem))

    def _message(self, value: Json) -> JSONRPCMessage | None:
        if not isinstance(value, dict):
            return None
        request_id = _request_id(value.get("id"))
        method = value.get("method")
        if isinstance(method, str):
            return _request(request_id, method, value.get("params"))
        if "error" in value and value["error"] is not None:
            return JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=_error(value["error"]))
        if request_id is None or "result" not in value:
            return None
        result = value["result"]
        if isinstance(result, dict):
            return JSONRPCResponse.model_construct(jsonrpc="2.0", id=request_id, result=result)
        problem = UpstreamAnswerError(f"the answer is no object: {self._excerpt(_told(result).encode())}")
        return self._broken_answer(request_id, problem)

    def _broken_answer(self, request_id: int | str | None, problem: UpstreamAnswerError) -> JSONRPCError:
        error = self._failures.carry(problem)
        return JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=error)


def _part(line: bytes, start: int, end: int) -> Steps[bytes]:
    """What stands there in it."""
    part = PiledText()
    with memoryview(line) as view:
        for at in range(start, end, STEP_BYTES):
            part.add(view[at : min(at + STEP_BYTES, end)])
            if at + STEP_BYTES < end:
                yield
    return (yield from part.taken())


def _objects(values: list[Json]) -> Steps[list[Json]]:
    """Those that may be messages, taken out of the others, which are dropped: a batch may have millions of them."""
    found: list[Json] = []
    while values:
        found += [value for value in reversed(values[-_GLANCED_AT:]) if isinstance(value, dict)]
        del values[-_GLANCED_AT:]
        if values:
            yield
    found.reverse()
    return found


def _request_id(value: Json) -> int | str | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return as_request_id(value)


def _number(value: Json) -> int | str | None:
    """The id that it is, as a number if it says one."""
    request_id = _request_id(value)
    return None if request_id is None else coerce_request_id(request_id)


def _request(request_id: int | str | None, method: str, params: Json) -> JSONRPCRequest | JSONRPCNotification:
    params = params if isinstance(params, dict) else None
    if request_id is None:
        return JSONRPCNotification.model_construct(jsonrpc="2.0", method=method, params=params)
    return JSONRPCRequest.model_construct(jsonrpc="2.0", id=request_id, method=method, params=params)


def _error(value: Json) -> ErrorData:
    if not isinstance(value, dict):
        return ErrorData(code=INTERNAL_ERROR, message=_told(value))
    code, message = value.get("code"), value.get("message")
    return ErrorData(
        code=code if isinstance(code, int) else INTERNAL_ERROR,
        message=message if isinstance(message, str) else _told(value),
        data=value.get("data"),
    )


def _told(value: Json) -> str:
    if is_larger(value, _MOST_TOLD):
        return value[:_MOST_TOLD] if isinstance(value, str) else "more than is told"
    return value if isinstance(value, str) else json.dumps(value)
