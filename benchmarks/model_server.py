"""A server on this machine that stands in for a model's API: what a client sends to its model can be read there."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def send(handler: BaseHTTPRequestHandler, content_type: str, text: str) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", content_type)
    handler.end_headers()
    handler.wfile.write(text.encode())


@contextmanager
def model_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve in a thread of its own, on a free port; gives the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
