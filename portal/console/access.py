"""Who may open the console at one address, and what is refused before anybody is asked.

Rule 1: a browser gets in by a ticket that a terminal printed, or by a token of the portal, also on loopback.
Rule 2: no other site may write: a write comes from a page of the same origin.
Rule 3: tickets and cookies are kept as hashes and never logged, and no address has a ticket after it was used. A token
is kept as it is as long as its session: each request is checked by it.
"""

import hashlib
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from portal.base.errors import SignInError
from portal.calls.fetch import FROM_SCRIPT
from portal.console.pages import bare_page, form_of
from portal.console.visitor import Visitor

TICKET_SECONDS: Final = 60
SESSION_SECONDS: Final = 12 * 3600
TOKEN_SESSION_SECONDS: Final = 8 * 3600
"""At most. A session by a token ends with the token, because each of its requests is checked as if it had sent it."""

MAX_KEPT: Final = 1_000
"""Tickets, and sessions. One more, and the oldest is forgotten."""

MAX_OF_ONE: Final = 100
"""Likewise, of one person: they cannot end the sessions of others."""

ENTER: Final = "/ui/enter"

_OWN_PATH: Final = re.compile(r"/ui(/[!-\[\]-~]*)?")
"""A path of the console on this origin: no blanks, no backslash, nothing that a browser would read as a host."""

Tokens: TypeAlias = Callable[[str], Awaitable[Visitor]]
"""Who a token of the portal belongs to. Raises SignInError."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A ticket, which leads to `path`, or a session. `who` is a visitor, or the token that tells it at each request."""

    who: Visitor | str
    owner: str | None
    ends: float
    path: str = ""


class Access:
    """Admits browsers at one address. `tokens` gives what checks tokens at the moment, None if the portal has none."""

    def __init__(
        self, is_own_host: Callable[[str], bool], tokens: Callable[[], Tokens | None] = lambda: None
    ) -> None:
        self._is_own_host, self._tokens = is_own_host, tokens
        self._tickets: dict[bytes, _Kept] = {}
        self._sessions: dict[bytes, _Kept] = {}

    def ticket(self, visitor: Visitor, path: str = "/ui/") -> str:
        """The path with which a browser enters once, within TICKET_SECONDS, and gets to `path`."""
        ticket = _Kept(visitor, visitor.owner, time.time() + TICKET_SECONDS, path)
        return f"{ENTER}?ticket={_keep(self._tickets, ticket)}"

    async def admit(self, request: Request) -> Visitor | Response:
        """The visitor of a request; or the response that refuses it, or that lets a browser in."""
        if (refused := self._refusal(request)) is not None:
            return refused
        if request.scope["path"] == "/ui":
            return RedirectResponse("/ui/")
        if request.scope["path"] == ENTER:
            return await self._enter(request)
        return await self._visitor(request) or self._door(request.scope["path"])

    def _refusal(self, request: Request) -> Response | None:
        headers, host = request.headers, request.headers.get("host", "")
        if FROM_SCRIPT in headers:
            return PlainTextResponse("Scripts must not reach a portal.\n", 403)
        if not self._is_own_host(host):
            text = f"The console is not served under Host {host[:100]!r}. See server.allowed_hosts.\n"
            return PlainTextResponse(text, 421)
        if request.method in ("GET", "HEAD"):
            return None
        # A browser that does not tell the site names the origin of a write.
        origin = headers.get("origin", "").lower()
        is_own = origin in (f"http://{host}".lower(), f"https://{host}".lower())
        if headers.get("sec-fetch-site", "same-origin" if is_own else "") == "same-origin":
            return None
        page = f"a page of {origin[:100]!r}" if origin else "no page"
        text = f"This request comes from {page}, not from the console at {host!r}."
        return PlainTextResponse(f"{text} If that is wrong, a proxy does not pass on Host.\n", 403)

    async def _enter(self, request: Request) -> Response:
        """Open a session by a ticket, or by a token that a form of the door sends."""
        if request.method != "POST":
            ticket = self._tickets.pop(_hash(request.query_params.get("ticket", "")), None)
            if ticket is None or ticket.ends < time.time():
                is_open = await self._visitor(request) is not None
                return self._door("/ui/", 403, "This link was used, is too old, or is wrong.", is_open)
            return self._opened(
                request, _Kept(ticket.who, ticket.owner, time.time() + SESSION_SECONDS), ticket.path
            )
        if (check := self._tokens()) is None:  # its form is not even read
            return self._door("/ui/", 403, "This console opens by a link from a terminal only.")
        form = await form_of(request)
        token, path = form.get("token", ""), form.get("path", "")
        try:
            owner = (await check(token)).owner
        except SignInError as error:
            return self._door(path, 403, f"Not opened: {error}.")
        return self._opened(request, _Kept(token, owner, time.time() + TOKEN_SESSION_SECONDS), path)

    def _opened(self, request: Request, session: _Kept, path: str) -> Response:
        response = RedirectResponse(path if _OWN_PATH.fullmatch(path) else "/ui/", 303)
        cookie = _keep(self._sessions, session)
        name, is_safe = _cookie_name(request), _is_https(request)
        path = "/" if is_safe else "/ui"
        # Lax, so that a link in a chat opens the page; writes of other sites are refused all the same.
        response.set_cookie(name, cookie, path=path, secure=is_safe, httponly=True, samesite="lax")
        return response

    async def _visitor(self, request: Request) -> Visitor | None:
        key = _hash(request.cookies.get(_cookie_name(request), ""))
        session = self._sessions.get(key)
        if session is None or session.ends < time.time():
            self._sessions.pop(key, None)
            return None
        if isinstance(session.who, Visitor):
            return session.who
        try:
            return await check(session.who) if (check := self._tokens()) is not None else None
        except SignInError as error:
            if error.status != 503:  # the identity provider may come back
                self._sessions.pop(key, None)
            return None

    def _door(self, path: str, status: int = 401, problem: str = "", is_open: bool = False) -> Response:
        told = {"path": path, "problem": problem, "is_open": is_open}
        return bare_page("door.html", status, **told, takes_tokens=self._tokens() is not None)


def _keep(kept: dict[bytes, _Kept], new: _Kept) -> str:
    """Returns the secret by which it is found."""
    for key in [key for key, each in kept.items() if each.ends < time.time()]:
        del kept[key]
    own = [key for key, each in kept.items() if each.owner == new.owner]
    if len(own) >= MAX_OF_ONE:
        del kept[own[0]]
    elif len(kept) >= MAX_KEPT:
        del kept[next(iter(kept))]
    secret = secrets.token_urlsafe(32)
    kept[_hash(secret)] = new
    return secret


def _hash(secret: str) -> bytes:
    """What is kept of a secret. Found by its hash, so that the time of a search reveals nothing of it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _is_https(request: Request) -> bool:
    """Whether the browser uses TLS, as far as the portal is told. Who lies about it only loses its own cookie."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))


def _cookie_name(request: Request) -> str:
    """The name has the port: browsers send the cookies of one port of a host to all of them."""
    port = request.headers.get("host", "").rpartition(":")[2]
    if _is_https(request):
        return "__Host-mcp-code-portal-console"
    return f"mcp-code-portal-console-{port if port.isdigit() else 80}"
