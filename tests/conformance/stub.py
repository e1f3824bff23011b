"""The command that the suite starts as the client: hands the scenario to `client.py` in the tests' process, and waits.

A portal of its own process for each of the sixty scenarios would cost two seconds each, most of them for imports.
"""

import json
import os
import socket
import sys

port, url = int(sys.argv[1]), sys.argv[2]
context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
with socket.create_connection(("127.0.0.1", port)) as connection:
    request = {"name": os.environ["MCP_CONFORMANCE_SCENARIO"], "url": url, "context": context}
    connection.sendall(json.dumps(request).encode() + b"\n")
    connection.makefile().read()
