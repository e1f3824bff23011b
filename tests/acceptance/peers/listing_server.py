"""An MCP server that lists what a file says: `listing_server.py FILE`, a JSON list of tools. Each call is noted.

Tools answer their arguments; `environ` answers the variable KEY, `fail` an error that repeats it, those of FAULTS do
worse. It is written without an SDK, which would take a second to import at each of the many starts.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
FAULTS = {
    "crash": lambda: os._exit(7),
    "write_no_json": lambda: print('{"jsonrpc": "2.0", oops}', flush=True),
    "write_too_much": lambda: print(json.dumps("x" * 200_000), flush=True),
    "flood": lambda: print('{"jsonrpc": "2.0", "method": "notifications/message"}\n' * 20_000, flush=True),
}


def initialize(params: Any) -> Any:
    server = {"name": "listing", "version": "1"}
    return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}


def list_tools(_: Any) -> Any:
    return {"tools": [{"inputSchema": {"type": "object"}, **tool} for tool in json.loads(FILE.read_text())]}


def call_tool(params: Any) -> Any:
    with FILE.with_suffix(".calls").open("a") as calls:
        calls.write(f"{params['name']}\n")
    if params["name"] in FAULTS:
        FAULTS[params["name"]]()
    key = os.environ.get("KEY", "")
    if params["name"] == "fail":
        return {"content": [{"type": "text", "text": f"refused {key}"}], "isError": True}
    content = {"key": key} if params["name"] == "environ" else params.get("arguments") or {}
    return {"content": [], "structuredContent": content}


ANSWERS = {
    "initialize": initialize,
    "ping": lambda _: {},
    "tools/list": list_tools,
    "tools/call": call_tool,
}

print(f"started with {os.environ.get('KEY', '')}", file=sys.stderr, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = ANSWERS.get(request["method"])
    if answer is None:
        said = {"error": {"code": -32601, "message": "Method not found"}}
    else:
        said = {"result": answer(request.get("params", {}))}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)
