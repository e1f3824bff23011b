"""The APIs of OpenAI (Responses) and Anthropic (Messages), with a model behind them that makes the calls it is told to.

Its last answer repeats the text that the last call brought back.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

from tests.acceptance.model import Json

USAGE = {"input_tokens": 1, "output_tokens": 1}


Call: TypeAlias = tuple[str, dict[str, Json]]
"""The portal's name of a tool, and its arguments."""


class FakeModels:
    """What the model was offered and got back; `url` is the base of both APIs, without /v1."""

    def __init__(self, url: str, calls: Sequence[Call]) -> None:
        self.url = url
        self.tools: list[str] = []
        self.results: list[str] = []
        self._calls = calls

    def answer(self, path: str, request: dict[str, Json]) -> dict[str, Json]:
        """The answer to a request of either API."""
        if path == "/v1/responses":
            items, call, text = request["input"], openai_call, openai_text
        else:
            items = [block for message in request["messages"] for block in blocks_of(message)]
            call, text = anthropic_call, anthropic_text
        tools = [tool["name"] for tool in request.get("tools", ())]
        if not tools:  # a client's own question, such as for a title
            return text("Noon")
        self.tools = tools
        self.results = [
            text_of(item.get("output", item.get("content")))
            for item in items
            if item.get("type") in ("function_call_output", "tool_result")
        ]
        if len(self.results) == len(self._calls):
            return text(self.results[-1])
        name, arguments = self._calls[len(self.results)]
        return call(len(self.results), next(tool for tool in tools if tool.endswith(name)), arguments)


def blocks_of(message: dict[str, Json]) -> list[dict[str, Json]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def text_of(content: Json) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def openai_call(number: int, name: str, arguments: dict[str, Json]) -> dict[str, Json]:
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
    return openai_response({**call, "arguments": json.dumps(arguments), "status": "completed"})


def openai_text(text: str) -> dict[str, Json]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return openai_response(
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    )


def openai_response(item: dict[str, Json]) -> dict[str, Json]:
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": "fake",
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**USAGE, **details, "total_tokens": 2},
    }


def anthropic_call(number: int, name: str, arguments: dict[str, Json]) -> dict[str, Json]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
    return anthropic_message(call, "tool_use")


def anthropic_text(text: str) -> dict[str, Json]:
    return anthropic_message({"type": "text", "text": text}, "end_turn")


def anthropic_message(block: dict[str, Json], stop_reason: str) -> dict[str, Json]:
    begun = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "stop_sequence": None}
    return {**begun, "content": [block], "stop_reason": stop_reason, "usage": USAGE}


def anthropic_events(message: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """The events of a streamed message of one block."""
    (block,) = message["content"]
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        arguments = json.dumps(block["input"])
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": arguments}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": empty}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": USAGE}
    yield {"type": "message_stop"}


@contextmanager
def fake_models(calls: Sequence[Call]) -> Iterator[FakeModels]:
    """Serve the APIs on a free port; the model makes these calls, one after the other."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = models.answer(self.path.partition("?")[0], request)
            is_stream = bool(request.get("stream"))
            if is_stream:
                events = anthropic_events(answer)
                body = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
            else:
                body = json.dumps(answer)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        models = FakeModels(f"http://127.0.0.1:{server.server_port}", calls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield models
        finally:
            server.shutdown()
