"""A stdio MCP server in plain JSON-RPC, standard library only, so that it can misbehave.

    python raw_server.py '{"tools": [...], "banner": "hello", "probe": "dies", ...}'

Each tool it knows does one thing a real server should not, or tells what happened to it. It speaks the handshake
era only.
"""

import json
import os
import signal
import subprocess
import sys
import time

BEHAVIOUR = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
if "tools_file" in BEHAVIOUR:
    with open(BEHAVIOUR["tools_file"]) as listed:
        BEHAVIOUR["tools"] = json.load(listed)
TOOLS = BEHAVIOUR.get("tools", [{"name": "echo", "inputSchema": {"type": "object"}}])
CANCELLED = []


def write(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}))


def answer(request, result):
    send({"id": request["id"], "result": result})


def answer_text(request, value):
    answer(request, {"content": [{"type": "text", "text": json.dumps(value)}]})


def start():
    if BEHAVIOUR.get("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "pid_file" in BEHAVIOUR:
        with open(BEHAVIOUR["pid_file"], "a") as pids:
            pids.write(f"{os.getpid()}\n")
        if BEHAVIOUR.get("has_grandchild"):
            spawn_grandchild(BEHAVIOUR["pid_file"])
    if "waits_for" in BEHAVIOUR:
        with open(BEHAVIOUR["waits_for"]) as fifo:
            fifo.read()
    if "stderr" in BEHAVIOUR:
        sys.stderr.write(BEHAVIOUR["stderr"] + "\n")
        sys.stderr.flush()
    if "exits_with" in BEHAVIOUR:
        sys.exit(BEHAVIOUR["exits_with"])
    if "banner" in BEHAVIOUR:
        write(BEHAVIOUR["banner"])


def spawn_grandchild(pid_file):
    """In a session of its own, deaf to SIGTERM: what a process group alone does not reach."""
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"open({pid_file!r}, 'a').write(f'{{os.getpid()}}\\n'); print('recorded', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code]
    child = subprocess.Popen(
        command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    child.stdout.readline()


def initialize(request):
    if "refuses_with" in BEHAVIOUR:
        send({"id": request["id"], "error": {"code": -32000, "message": BEHAVIOUR["refuses_with"]}})
        return
    server = {"name": BEHAVIOUR.get("server_name", "raw"), "version": "1"}
    capabilities = {"tools": {"listChanged": True}}
    answer(
        request,
        {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "serverInfo": server,
            "instructions": BEHAVIOUR.get("instructions", "be kind"),
            **BEHAVIOUR.get("handshake", {}),
        },
    )


def list_tools(request):
    if "tools_error" in BEHAVIOUR:
        send({"id": request["id"], "error": BEHAVIOUR["tools_error"]})
    elif "pages" in BEHAVIOUR:
        page = int((request.get("params") or {}).get("cursor") or 0)
        answer(
            request,
            {
                "tools": [{"name": f"tool_{page}", "inputSchema": {"type": "object"}}],
                "nextCursor": str(page + 1) if BEHAVIOUR["pages"] == "endless" else "",
            },
        )
    elif "tools_text" in BEHAVIOUR:
        write(
            f'{{"jsonrpc": "2.0", "id": {request["id"]}, "result": {{"tools": {BEHAVIOUR["tools_text"]}}}}}'
        )
    else:
        answer(request, {"tools": TOOLS})


def call_tool(request):
    arguments = request["params"].get("arguments") or {}
    ACTIONS[request["params"]["name"]](request, arguments)


def echo(request, arguments):
    answer_text(request, arguments)


def raw(request, arguments):
    """Answers with exactly this text as the result."""
    write(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{arguments["result"]}}}')


def raw_again(request, arguments):
    """Answers with its id as text, and once more."""
    for text in ("first", "second"):
        answer_text({"id": str(request["id"])}, text)


def meta(request, arguments):
    answer_text(request, request["params"].get("_meta"))


def error(request, arguments):
    send({"id": request["id"], "error": arguments})


def error_without_id(request, arguments):
    send({"id": None, "error": arguments})


def hang(request, arguments):
    """Never answers; its effect may be a line in a file."""
    act(arguments)


def cancelled(request, arguments):
    answer_text(request, CANCELLED)


def crash(request, arguments):
    act(arguments)
    sys.stderr.write("about to crash\n")
    sys.stderr.flush()
    os._exit(7)


def act(arguments):
    if "acts_on" in arguments:
        with open(arguments["acts_on"], "a") as effect:
            effect.write("done\n")


def flood(request, arguments):
    """An answer of so many bytes."""
    answer_text(request, "x" * arguments["bytes"])


def environment(request, arguments):
    # What this process was started with: Python adds LC_CTYPE to its own os.environ.
    with open("/proc/self/environ", "rb") as environ:
        names = [entry.partition(b"=")[0].decode() for entry in environ.read().split(b"\0") if entry]
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    answer_text(request, {"names": names, "folder": os.getcwd(), "descriptors": descriptors})


def ask(request, arguments):
    """Sends the client a request of its own and answers with what came back."""
    send({"id": "ask-1", "method": arguments["method"], "params": arguments.get("params", {})})
    reply = json.loads(sys.stdin.readline())
    answer_text(request, reply)


def change(request, arguments):
    TOOLS[:] = [tool for tool in TOOLS if tool["name"] != arguments["name"]]
    if not arguments.get("is_gone"):
        more = {key: arguments[key] for key in ("description", "annotations") if key in arguments}
        schema = arguments.get("schema", {"type": "object"})
        TOOLS.append({"name": arguments["name"], "inputSchema": schema, **more})
    send({"method": "notifications/tools/list_changed"})
    answer_text(request, None)


def progress(request, arguments):
    token = request["params"]["_meta"]["progressToken"]
    send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2}})
    answer_text(request, None)


ACTIONS = {
    action.__name__: action
    for action in (
        echo,
        raw,
        raw_again,
        meta,
        error,
        error_without_id,
        hang,
        cancelled,
        crash,
        flood,
        environment,
        ask,
        change,
        progress,
    )
}
# What servers do that do not know `server/discover`, besides an error.
PROBES = {
    "ignores": lambda request: None,
    "has no id": lambda request: send({"id": None, "error": {"code": -32700, "message": "what?"}}),
    "complains": lambda request: write("unknown method server/discover"),
    "odd result": lambda request: answer(request, {"supported": 7}),
    "dies": lambda request: sys.exit(9),
    "dies later": lambda request: sys.exit(f"input_value='server/discover' {sys.stdin.readline()}"),
    "is deaf": lambda request: time.sleep(600),
}
METHODS = {"initialize": initialize, "tools/list": list_tools, "tools/call": call_tool}


def handle(message):
    method = message.get("method")
    if "log" in BEHAVIOUR:
        with open(BEHAVIOUR["log"], "a") as log:
            log.write(f"{method}\n")
    if method == "server/discover" and "probe" in BEHAVIOUR:
        PROBES[BEHAVIOUR["probe"]](message)
        return
    if method == "notifications/cancelled":
        CANCELLED.append(message["params"]["requestId"])
    elif method in METHODS:
        METHODS[method](message)
    elif "id" in message and method is not None:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


start()
for line in sys.stdin:
    handle(json.loads(line))
while BEHAVIOUR.get("ignores_eof"):
    time.sleep(600)
