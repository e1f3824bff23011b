"""A server for any release of the first major version of the Python SDK.

    python sdk1_server.py stdio | sse PORT | streamable-http PORT

Over HTTP it forgets its sessions whenever it is told to: it starts again, on the same port.
"""

import os
import sys
import threading

from mcp.server.fastmcp import FastMCP

server = FastMCP("adder", log_level="INFO", **({"port": int(sys.argv[2])} if len(sys.argv) > 2 else {}))


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def process() -> str:
    """Which of its lives this is."""
    return os.environ.get("LIFE", "")


@server.tool()
def restart() -> str:
    """Start again, once this is answered."""
    life = {**os.environ, "LIFE": process() + "I"}
    threading.Timer(0.3, os.execve, (sys.executable, [sys.executable, *sys.argv], life)).start()
    return "soon"


server.run(sys.argv[1])
