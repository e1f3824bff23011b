"""A stdio MCP server with one fault, standard library only.

    python stdio_server.py '{"fault": "crash_before_acting", "log": "FILE"}'

Three tools: `act` declares nothing, `look` is read-only, `fine` never fails. A fault of a call strikes the first call
of `act` and the first of `look`, also when the process was started again in between, and every one with
`"always": true`; a fault of the start strikes always.
The log has a line for every start, arrival (with the idempotency key) and effect.
"""

import json
import os
import sys
import threading
import time

BEHAVIOUR = json.loads(sys.argv[1])
FAULT = BEHAVIOUR["fault"]
CAP_BYTES = 16 * 1024 * 1024
ANY = {"type": "object"}
TOOLS = [
    {"name": "act", "inputSchema": ANY},
    {"name": "look", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {"name": "fine", "inputSchema": ANY},
]


def note(*words):
    with open(BEHAVIOUR["log"], "a") as log:
        log.write(" ".join(words) + "\n")


def noted(*words):
    with open(BEHAVIOUR["log"]) as log:
        return sum(line.split()[: len(words)] == list(words) for line in log)


def raw(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def send(message):
    raw(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def notify(method):
    send({"method": method})


def result(request):
    value = {"tool": request["params"]["name"], "n": (request["params"].get("arguments") or {}).get("n")}
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


def frame(request, **changes):
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result(request), **changes}) + "\n"


def succeed(request):
    effect(request)
    raw(frame(request))


def effect(request):
    note("effect", request["params"]["name"])


# What happens to a call.


def trickle(request):
    effect(request)
    for character in frame(request):
        raw(character)


def hang_after_acting(request):
    effect(request)


def stop_reading(request):
    time.sleep(600)


def crash_before_acting(request):
    os._exit(7)


def crash_after_acting(request):
    effect(request)
    os._exit(7)


def crash_in_the_answer(request):
    effect(request)
    raw(frame(request)[:40])
    os._exit(7)


def close_stdout(request):
    effect(request)
    os.close(1)
    time.sleep(600)


def close_stdin(request):
    os.close(0)  # before the answer: the next call must not lie in the pipe by then
    succeed(request)
    time.sleep(600)


def garbage_with_the_id(request):
    effect(request)
    raw(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{oops}}\n')


def too_long(request):
    effect(request)
    raw(frame(request, result={"content": [{"type": "text", "text": "x" * (CAP_BYTES + 1)}]}))


def too_many_values(request):
    effect(request)
    raw(
        f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"structuredContent":[{"[]," * 3_000_000}[]]}}}}\n'
    )


def never_ending_line(request):
    effect(request)
    while True:
        raw("x" * 1_000_000)


def answer_what_nobody_asked(request):
    effect(request)
    raw(frame(request, id=999_999) + frame(request, id=None) + frame(request))


def banner(request):
    effect(request)
    raw("Working on it...\n[==>  ] 50 %\n" + frame(request))


def flood_stderr_lines(request):
    """For as long as somebody reads; the server goes on beside it."""

    def flood():
        while True:
            os.write(2, b"x\n" * 32_768)

    threading.Thread(target=flood, daemon=True).start()
    succeed(request)


def flood_notices(request):
    text = "x" * 1_000_000
    flood_with(request, {"method": "notifications/message", "params": {"level": "info", "data": text}})


def flood_with(request, message):
    effect(request)
    line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    while True:
        raw(line)


def flood_stdout(request):
    """Lines that are no messages, for as long as somebody reads."""
    effect(request)
    while True:
        raw("x\n" * 100)


def flood_requests(request):
    flood_with(request, {"id": "ask", "method": "sampling/createMessage", "params": {}})


def much_progress(request):
    for number in range(2000):
        params = {"progressToken": request["id"], "progress": number}
        send({"method": "notifications/progress", "params": params})
    succeed(request)


def tool_is_gone(request):
    TOOLS[:] = [tool for tool in TOOLS if tool["name"] != request["params"]["name"]]
    notify("notifications/tools/list_changed")
    send({"id": request["id"], "error": {"code": -32602, "message": "Unknown tool"}})


def error_without_sense(request):
    send({"id": request["id"], "error": "out of order"})


# What happens at the start.


def exit_at_start():
    sys.exit(3)


def silent_at_start():
    time.sleep(600)


def log_at_start():
    for number in range(1_000):
        raw(f"[INFO] loading {number}\n")


def flood_at_start():
    while True:
        raw("loading " * 12_500 + "\n")


STARTS = {
    action.__name__: action for action in (exit_at_start, silent_at_start, log_at_start, flood_at_start)
}


def initialize(request):
    answer = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "faulty", "version": "1"},
    }
    if FAULT == "nonsense_version":
        answer["protocolVersion"] = "9999-99-99"
    if FAULT == "handshake_refused":
        send({"id": request["id"], "error": {"code": -32603, "message": "not today"}})
        return
    send({"id": request["id"], "result": answer})


def list_tools(request):
    note("list")
    answer = {"tools": TOOLS}
    if FAULT == "endless_pages":
        cursor = int((request.get("params") or {}).get("cursor") or 0)
        more = [{"name": f"more_{cursor}", "inputSchema": ANY}]
        answer = {"tools": more if cursor else TOOLS, "nextCursor": str(cursor + 1)}
    if FAULT == "pages_in_a_circle":
        answer["nextCursor"] = "again"
    if FAULT == "listing_refused":
        send({"id": request["id"], "error": {"code": -32603, "message": "no tools today"}})
        return
    if FAULT == "close_stdin_at_once":
        os.close(0)  # before the portal knows of the tools: no call may lie in the pipe by then
    send({"id": request["id"], "result": answer})
    if FAULT == "close_stdin_at_once":
        time.sleep(600)


def call_tool(request):
    tool = request["params"]["name"]
    strike = None if FAULT in STARTS else globals().get(FAULT)
    is_struck = tool != "fine" and strike and (BEHAVIOUR.get("always") or not noted("arrival", tool))
    key = (request["params"].get("_meta") or {}).get("dev.mcp-code-portal/idempotency-key", "-")
    note("arrival", tool, key)
    if is_struck:
        strike(request)
    else:
        succeed(request)


def main():
    note("start")
    STARTS.get(FAULT, lambda: None)()
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            initialize(message)
        elif method == "tools/list":
            list_tools(message)
        elif method == "tools/call":
            call_tool(message)
        elif method == "ping":
            send({"id": message["id"], "result": {}})
        elif "id" in message and method is not None:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


main()
