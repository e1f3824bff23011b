"""An MCP server that ignores the end of its stdin and SIGTERM, and has a child in a session of its own."""

import signal
import subprocess
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("stubborn")


@server.tool()
def tell(fifo: str) -> str:
    """Tell whoever reads the FIFO that this was called."""
    Path(fifo).write_text("called\n")
    return "told"


signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(
    [sys.executable, "-c", "import signal; signal.pause()"],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    start_new_session=True,
)
server.run()
signal.pause()
