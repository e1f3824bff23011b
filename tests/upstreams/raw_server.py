"""A stdio MCP server in plain JSON-RPC, standard library only, so that it can misbehave.

    python raw_server.py '{"tools": [...], "banner": "hello", "probe": "dies", ...}'
    python raw_server.py '{"fault": "crash_before_acting", "journal": "FILE"}'

Each tool it knows does one thing a real server should not, or tells what happened to it. It speaks the handshake
era only.

With a fault it has three tools: `act` declares nothing, `look` is read-only, `fine` never fails. The fault strikes the
first call of `act` and the first of `look`, also when the process was started again in between. The journal has a line
for every start, arrival (with the idempotency key) and effect.
"""

import json
import os
import signal
import sys
import time

BEHAVIOUR = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
FAULT = BEHAVIOUR.get("fault")
if "tools_file" in BEHAVIOUR:
    with open(BEHAVIOUR["tools_file"]) as listed:
        BEHAVIOUR["tools"] = json.load(listed)
ANY = {"type": "object"}
TOOLS = BEHAVIOUR.get("tools", [{"name": "echo", "inputSchema": ANY}])
if FAULT:
    TOOLS = [{"name": name, "inputSchema": ANY} for name in ("act", "look", "fine")]
    TOOLS[1]["annotations"] = {"readOnlyHint": True}
CANCELLED = []
CAP_BYTES = 16 * 1024 * 1024


def raw_text(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def write(text):
    raw_text(text + "\n")


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}))


def answer(request, result):
    send({"id": request["id"], "result": result})


def answer_text(request, value):
    answer(request, {"content": [{"type": "text", "text": json.dumps(value)}]})


def start():
    note("start")
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
    while FAULT == "flood_at_start":
        write("loading " * 12_500)


def spawn_grandchild(pid_file):
    """In a session of its own, deaf to SIGTERM: what a process group alone does not reach."""
    import subprocess  # few starts need it, and it takes a tenth of one

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
    told = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "raw", "version": "1"},
        "instructions": "be kind",
    }
    answer(request, told | BEHAVIOUR.get("handshake", {}))


def list_tools(request):
    if "tools_error" in BEHAVIOUR:
        send({"id": request["id"], "error": BEHAVIOUR["tools_error"]})
    else:
        answer(request, {"tools": TOOLS, **BEHAVIOUR.get("end", {})})


def call_tool(request):
    name, arguments = request["params"]["name"], request["params"].get("arguments") or {}
    if FAULT:
        call_with_fault(request, name)
    else:
        ACTIONS[name](request, arguments)


def echo(request, arguments):
    answer_text(request, arguments)


def raw(request, arguments):
    """Answers with exactly this text as the result, behind a `front`."""
    front = arguments.get("front", "").replace("ID", str(request["id"]))
    write(front + f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{arguments["result"]}}}')


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
    """An answer of this many bytes."""
    answer_text(request, "x" * arguments["bytes"])


def environment(request, arguments):
    # The environment this process was started with: Python adds LC_CTYPE to its own os.environ.
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


# Faults of a call.


def note(*words):
    if "journal" in BEHAVIOUR:
        with open(BEHAVIOUR["journal"], "a") as journal:
            journal.write(" ".join(words) + "\n")


def is_first(tool):
    with open(BEHAVIOUR["journal"]) as journal:
        return not any(line.split()[:2] == ["arrival", tool] for line in journal)


def call_with_fault(request, tool):
    strike = globals().get(FAULT, succeed)
    if tool == "fine" or not is_first(tool):
        strike = succeed
    note("arrival", tool, request["params"].get("_meta", {}).get("dev.mcp-code-portal/idempotency-key", "-"))
    strike(request)


def frame(request, **changes):
    value = {"tool": request["params"]["name"], "n": (request["params"].get("arguments") or {}).get("n")}
    result = {"content": [{"type": "text", "text": json.dumps(value)}]}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result, **changes}) + "\n"


def effect(request):
    note("effect", request["params"]["name"])


def succeed(request):
    effect(request)
    raw_text(frame(request))


def stop_reading(request):
    time.sleep(600)


def crash_in_the_answer(request):
    effect(request)
    raw_text(frame(request)[:40])
    os._exit(7)


def close_stdout(request):
    effect(request)
    os.close(1)
    time.sleep(600)


def close_stdin(request):
    os.close(0)  # before the answer: the next call must not lie in the pipe by then
    succeed(request)
    time.sleep(600)


def too_long(request):
    effect(request)
    raw_text(frame(request, result={"content": [{"type": "text", "text": "x" * (CAP_BYTES + 1)}]}))


def answer_what_nobody_asked(request):
    effect(request)
    raw_text(frame(request, id=999_999) + frame(request, id=None) + frame(request))


def flood_stderr_lines(request):
    """Until the reader leaves; the server keeps serving."""
    import threading

    def flood():
        while True:
            os.write(2, b"x\n" * 32_768)

    threading.Thread(target=flood, daemon=True).start()
    succeed(request)


def flooding(text):
    """This, until the reader leaves."""

    def strike(request):
        effect(request)
        while True:
            raw_text(text)

    return strike


def message(method, params, **more):
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}) + "\n"


def much_progress(request):
    for number in range(2000):
        params = {"progressToken": request["id"], "progress": number}
        send({"method": "notifications/progress", "params": params})
    succeed(request)


hang_after_acting = effect
never_ending_line = flooding("x" * 1_000_000)
flood_stdout = flooding("x\n" * 100)
flood_notices = flooding(message("notifications/message", {"level": "info", "data": "x" * 1_000_000}))
flood_requests = flooding(message("sampling/createMessage", {}, id="ask"))

ACTIONS = {
    action.__name__: action
    for action in (
        *(echo, raw, raw_again, meta, error, error_without_id, hang),
        *(cancelled, crash, flood, environment, ask, change),
    )
}


DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def answer_both(is_probe_first, is_modern=True):
    """As servers on the Rust SDK that start slowly; from then on requests need the envelope of 2026-07-28.

    Those on the TypeScript SDK then know the older revision alone.
    """

    def react(probe):
        refusal = {"code": -32602, "message": "request _meta is missing"}
        METHODS["tools/list"] = lambda request: (
            list_tools(request)
            if ("_meta" in request.get("params", {})) == is_modern
            else send({"id": request["id"], "error": refusal})
        )
        del BEHAVIOUR["probe"]
        if is_modern:
            METHODS["server/discover"] = lambda request: answer(request, DISCOVERED)
        handshake = json.loads(sys.stdin.readline())
        if not is_probe_first:
            initialize(handshake)
            sys.stdin.readline()  # the client has read the answer
        answer(probe, DISCOVERED)
        if is_probe_first:
            initialize(handshake)

    return react


# Reactions of servers that do not know `server/discover`, besides an error, and of one that does.
PROBES = {
    "comes first": answer_both(True),
    "comes last": answer_both(False),
    "is forgotten": answer_both(True, is_modern=False),
    "has no id": lambda request: send({"id": None, "error": {"code": -32700, "message": "what?"}}),
    "complains": lambda request: write("unknown method server/discover"),
    "odd result": lambda request: answer(request, {"supported": 7}),
    "dies": lambda request: sys.exit(9),
    "dies later": lambda request: sys.exit(f"input_value='server/discover' {sys.stdin.readline()}"),
    "is deaf": lambda request: time.sleep(600),
}
METHODS = {
    "initialize": initialize,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "ping": lambda request: answer(request, {}),
}


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
