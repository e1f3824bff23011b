"""Receives what a browser brings back from an authorization server, on a port of this machine.

Source: RFC 8252 (native apps), 7.3 and 8.3.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from mcp.shared.auth import AuthorizationCodeResult

from upstreams.oauth.errors import OAuthError, OAuthRefusedError

_PATH: Final = "/callback"
_MAX_HEAD_BYTES: Final = 32 * 1024
_HEAD_SECONDS: Final = 5.0
_PAGE: Final = "<!doctype html><title>mcp-code-portal</title><p>{}</p><p>You can close this window.</p>"


class Redirection:
    """What came back for one login. Whatever has not its `state` is turned away, and the login goes on waiting."""

    def __init__(self, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}{_PATH}"
        self.state = secrets.token_urlsafe(32)
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._came = anyio.Event()
        self._result: AuthorizationCodeResult | OAuthRefusedError | None = None

    async def result(self) -> AuthorizationCodeResult:
        """What the authorization server sent.

        Raises:
            OAuthRefusedError: That is a no.
        """
        await self._came.wait()
        if isinstance(self._result, AuthorizationCodeResult):
            return self._result
        raise self._result or OAuthRefusedError("nothing came back")

    async def answer(self, stream: SocketStream) -> None:
        """Serve one connection of a browser, or of whoever found the port."""
        async with stream:
            with anyio.move_on_after(_HEAD_SECONDS):
                try:
                    status, text = self._read(await _head(stream))
                    await stream.send(_response(status, text))
                except (anyio.BrokenResourceError, anyio.EndOfStream):
                    return

    def _read(self, head: bytes) -> tuple[str, str]:
        try:
            return self._taken(head)
        except ValueError:  # a URL that is none, or with too many fields
            return "400 Bad Request", "This makes no sense."

    def _taken(self, head: bytes) -> tuple[str, str]:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "")
        if len(words) != 3 or words[0] != "GET" or host not in self._hosts:
            return "400 Bad Request", "This is not for you."
        parts = urlsplit(words[1])
        if parts.path != _PATH:
            return "404 Not Found", "Nothing is here."
        query = parse_qs(parts.query, max_num_fields=50)
        if not secrets.compare_digest(_one(query, "state").encode(), self.state.encode()):
            return "400 Bad Request", "This is not the login that was begun."
        if not self._came.is_set():
            self._result = _result(query)
            self._came.set()
        return "200 OK", "Signed in." if _one(query, "code") else "Not signed in."


@asynccontextmanager
async def open_redirection(port: int) -> AsyncIterator[Redirection]:
    """Listen on 127.0.0.1 until the login is over; port 0 takes a free one.

    Raises:
        OAuthError: The port is taken.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise OAuthError(f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}") from None
    redirection = Redirection(listener.extra(SocketAttribute.local_port))
    failure: OAuthError | None = None
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, redirection.answer)
        try:
            yield redirection
        except OAuthError as error:  # raised here it would become a group of errors
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _head(stream: SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD_BYTES:
        head += await stream.receive(4096)
    return head.partition(b"\r\n\r\n")[0]


def _response(status: str, text: str) -> bytes:
    body = _PAGE.format(text).encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


def _one(query: dict[str, list[str]], name: str) -> str:
    values = query.get(name, [])
    return values[0] if len(values) == 1 else ""


def _result(query: dict[str, list[str]]) -> AuthorizationCodeResult | OAuthRefusedError:
    code, error = _one(query, "code"), _one(query, "error")
    if code and not error:
        return AuthorizationCodeResult(code=code, state=_one(query, "state"), iss=_one(query, "iss") or None)
    said = error if error.isascii() and error.replace("_", "").isalpha() and len(error) <= 64 else "no"
    return OAuthRefusedError(f"the authorization server says {said}", code=said)
