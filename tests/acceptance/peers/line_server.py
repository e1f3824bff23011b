"""Serves tools over stdio without an SDK, which would take a second to import at each of the many starts."""

import json
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

writing = threading.Lock()
"""Held while a line is written."""


def serve(name: str, tools: Sequence[Any], called: Callable[[str, Any], Any]) -> None:
    """Answer requests until stdin ends, each in a thread of its own. `called` gives the result of a call."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            threading.Thread(target=_answer, args=[name, tools, called, request], daemon=True).start()


def _answer(name: str, tools: Sequence[Any], called: Callable[[str, Any], Any], request: Any) -> None:
    method, params = request["method"], request.get("params", {})
    said: Any = {"error": {"code": -32601, "message": "Method not found"}}
    if method == "initialize":
        server, version = {"name": name, "version": "1"}, params["protocolVersion"]
        said = {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
    elif method == "ping":
        said = {"result": {}}
    elif method == "tools/list":
        said = {"result": {"tools": tools}}
    elif method == "tools/call":
        said = {"result": called(params["name"], params.get("arguments") or {})}
    with writing:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)
