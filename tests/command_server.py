"""Runs commands of the portal in processes that need not import the SDK first: `command_server.py SOCKET`.

The import takes more than a second, and tests start hundreds of commands. This process imports once, and forks for each
`command_relay.py`, which lends its arguments, environment, folder and streams, and ends as the command ends. The server
ends with its stdin, and a command with its relay.
"""

import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from importlib import import_module
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(path: str) -> None:
    import portal.cli  # what commands import only when they need it, too

    for name in [
        "portal.app.serving",
        *(f"portal.cli.{each.name}" for each in pkgutil.iter_modules(portal.cli.__path__)),
    ]:
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for the processes that watch commands
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while listener in select.select([0, listener], [], [])[0]:
        relay, _ = listener.accept()
        if os.fork() == 0:
            watch(relay)
        relay.close()


def watch(relay: socket.socket) -> NoReturn:
    """Run one command, pass signals on to it, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, _, _ = socket.recv_fds(relay, 1 << 16, 3)
    while not data.endswith(b"\n"):
        data += relay.recv(1 << 16)
    if (pid := os.fork()) == 0:
        begin(json.loads(data), streams)
    os.closerange(0, 3)
    for each in streams:
        os.close(each)
    ended = os.pidfd_open(pid)
    while ended not in select.select([relay, ended], [], [])[0]:
        sent = relay.recv(1)
        os.kill(pid, sent[0] if sent else signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    relay.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def begin(wanted: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the command."""
    os.setsid()
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
    os.closerange(3, 1024)
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL if each != signal.SIGINT else signal.default_int_handler)
    os.environ.clear()
    os.environ.update(wanted["environ"])
    os.chdir(wanted["folder"])
    sys.argv = ["mcp-code-portal", *wanted["arguments"]]
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    try:
        import_module("portal.__main__").main()
    finally:
        os._exit(70)  # not reached: main ends the process


if __name__ == "__main__":
    serve(sys.argv[1])
