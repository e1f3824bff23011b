"""Runs over HTTP: start, list, watch, cancel, fork and decide them, and deliver their events.

Rule 1: a request for another owner's run gets exactly the answer for one that does not exist.
Rule 2: what changes a run is `application/json`. A browser sends that to another origin only after a preflight.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final, Literal, Self, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import structlog
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from manifests.json_value import Json
from manifests.kernels import KernelName
from portal.base.caller import Caller
from portal.base.errors import RunsError
from portal.base.requests import ExecuteCode
from portal.base.times import iso
from portal.identity.approvers import Decider
from portal.records.store.records import OPEN, LogRow, OwnLimitError, StoreError
from portal.records.store.run_tables import RunTables
from portal.runs.decisions import details, find_run, fork_run, overseen_tenant, run_view, waiting_view
from portal.runs.service import Runs
from portal.server.callers import decider_of_request, http_caller, program_of
from sandbox_runtime.guest_json import GuestJsonError, encode, parse

log = structlog.get_logger()

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Found = TypeVar("Found")

MAX_BODY_BYTES: Final = 4 << 20
MAX_PAYLOAD_BYTES: Final = 1 << 20
KEEP_ALIVE_SECONDS: Final = 15.0

_PAGE: Final = 100
_NO_HOOK: Final = "the URL is wrong, or the run that waited for it has ended"
_STATUSES: Final = {
    **dict.fromkeys(("unknown_run", "unknown_call", "unknown_hook"), 404),
    **dict.fromkeys(("run_ended", "already_decided"), 409),
    **dict.fromkeys(("runs_unavailable", "journal_failed", "store_failed"), 503),
    "body_too_large": 413,
    "unsupported_media_type": 415,
    **dict.fromkeys(("token_required", "not_an_approver", "four_eyes"), 403),
    "quota_exceeded": 507,
}


class Given(BaseModel, extra="forbid", allow_inf_nan=False):
    """What a client sends."""

    @classmethod
    def of(cls, given: Json) -> Self:
        """Raises RunsError: it names the first key that is not valid."""
        if not isinstance(given, dict):
            fields = cls.model_fields.items()
            keys = ", ".join(f"{key}{'?' * (not field.is_required())}" for key, field in fields)
            message = f"the body must be an object {{{keys}}}"
            raise RunsError("invalid_arguments", message, "See docs/http-api.md.")
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            key = ".".join(map(str, first["loc"]))[:60] or "the request"
            raise RunsError("invalid_arguments", f"{key}: {first['msg']}", "See docs/http-api.md.") from None


class Query(Given):
    """The query string. `wait` is in seconds."""

    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    open: bool = False
    waiting: bool = False
    wait: Annotated[float, Field(ge=0, le=60)] = 0.0


class NewRun(Given):
    code: str
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    kernel: KernelName | None = None


class Fork(Given):
    """The call before which the new run continues live, and its script, if that changes."""

    at: int
    code: str | None = None


class Decision(Given):
    decision: Literal["approve", "approve_later", "deny"]
    reason: Annotated[str, Field(max_length=2_000)] = ""
    arguments: dict[str, Json] | None = None


def run_routes(runs: Runs, profile: Callable[[str | None], str | None]) -> list[Route]:
    """The routes. `profile` maps a token's profile to the one that applies. All but `/hooks/` have to be behind the
    portal's authentication."""
    own = RunRoutes(runs, profile)
    routes: list[tuple[str, str, Handler]] = [
        ("POST", "/runs", own.start),
        ("GET", "/runs", own.listed),
        ("GET", "/runs/{run}", own.show),
        ("GET", "/runs/{run}/events", own.events),
        ("POST", "/runs/{run}/cancel", own.cancel),
        ("POST", "/runs/{run}/fork", own.fork),
        ("POST", "/runs/{run}/answers/{seq:int}", own.decide),
        ("POST", "/hooks/{token}", own.deliver),
    ]
    return [Route(path, partial(_answer, handler), methods=[method]) for method, path, handler in routes]


@dataclass(frozen=True)
class RunRoutes:
    """The handlers. They raise RunsError and StoreError."""

    runs: Runs
    profile: Callable[[str | None], str | None]

    async def start(self, request: Request) -> Response:
        """Start a run. With `?wait=`, answer when it has ended, after at most that many seconds."""
        new, query = NewRun.of(await _body(request)), Query.of(dict(request.query_params))
        caller = self._caller(request)
        asked = ExecuteCode(new.code, timeout_seconds=new.timeout_seconds, background=True, kernel=new.kernel)
        answer = await self.runs.start(self.profile(caller.profile), asked, caller)
        run, owner = answer.run_id, caller.run_owner
        try:
            with anyio.move_on_after(query.wait):
                while query.wait:
                    news = self.runs.changes.news
                    if (await self._read(partial(find_run, run=run, owner=owner), owner)).state not in OPEN:
                        break
                    await news.wait()
            answer = await self.runs.answer(run, owner)
        except StoreError as error:  # it has started: a client that reads of a failure would start it again
            log.error("runs_not_read", run=run, error=str(error))
        except asyncio.CancelledError:
            pass  # the portal ends, and another one goes on with the run: the same holds
        return await _json(answer.structured, 202 if answer.status in OPEN else 200, Location=f"/runs/{run}")

    async def listed(self, request: Request) -> Response:
        """The caller's runs. `?waiting=true` lists those that wait for a person; for an approver, the tenant's too."""
        query, (_, owner) = Query.of(dict(request.query_params)), _named(request)
        tenant = overseen_tenant(_decider(request), self.runs.approvers) if query.waiting else None

        def views(tables: RunTables) -> list[dict[str, Json]]:
            rows = tables.listed(
                owner, query.limit, tenant=tenant, is_open=query.open, is_asking=query.waiting
            )
            return [
                run_view(row, tables.caller(row.owner))
                | ({"waiting": waiting_view(tables.calls(row.id))} if query.waiting else {})
                for row in rows
            ]

        listed = await self._read(views, owner)
        return await _json(lambda: {"runs": listed})

    async def show(self, request: Request, run: str = "") -> Response:
        seen = await self.runs.seen(run or _named(request)[0], _decider(request))
        return await _json(partial(details, seen))

    async def cancel(self, request: Request) -> Response:
        run = await self.runs.cancel(*_named(request))
        return await self._changed(request, run, {"run_id": run, "state": "cancelled"})

    async def fork(self, request: Request) -> Response:
        fork, (run, _), caller = Fork.of(await _body(request)), _named(request), self._caller(request)
        profile = self.profile(caller.profile)
        whose = partial(fork_run, caller=caller, profile=profile, mask=self.runs.mask)
        work = partial(whose, run=run, seq=fork.at, code=fork.code)
        row = await self.runs.store_or_error().write(work, is_lasting=True)
        self.runs.changes.wake(row.id)
        view = run_view(row, caller.label)
        return await _json(lambda: view, 201, Location=f"/runs/{row.id}")

    async def decide(self, request: Request) -> Response:
        given, (run, _) = Decision.of(await _body(request)), _named(request)
        is_approved, seq = given.decision != "deny", request.path_params["seq"]
        more: Json = {"stands": given.decision == "approve_later", "arguments": given.arguments}
        more |= {"is_approved": is_approved, "reason": given.reason}
        run = await self.runs.decide(run, seq, _decider(request), **more)
        decision = "approved" if is_approved else "denied"
        return await self._changed(request, run, {"run_id": run, "seq": seq, "decision": decision})

    async def deliver(self, request: Request) -> Response:
        """Deliver an event. Anyone who knows the URL may."""
        token, unknown = request.path_params["token"], RunsError("unknown_hook", _NO_HOOK, "Check it.")
        if not await self._read(partial(RunTables.knows_hook, token=token)):
            raise unknown
        payload = encode(await _body(request, MAX_PAYLOAD_BYTES))
        is_first = await self.runs.deliver(token, payload)
        if is_first is None:
            raise unknown
        note: dict[str, Json] = {} if is_first else {"note": "it came before, and this payload is not used"}
        return await _json(lambda: {"is_first": is_first, **note}, 202 if is_first else 200)

    async def events(self, request: Request) -> Response:
        """Stream the events of a run until it ends.

        Source: HTML, 9.2 Server-sent events.
        """
        run, owner = _named(request)
        run = (await self._read(partial(find_run, run=run, owner=owner), owner)).id
        given = request.headers.get("last-event-id", "")
        if given and not re.fullmatch(r"[0-9]{1,18}", given):
            message = f"Last-Event-ID is a number, not {given[:60]!r}"
            raise RunsError("invalid_arguments", message, "Send the id of the last event.")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        # A HEAD would wait for the end of a stream that it does not get.
        stream = () if request.method == "HEAD" else self._stream(run, owner, int(given or 0))
        return StreamingResponse(stream, 200, headers, "text/event-stream")

    async def _stream(self, run: str, owner: str, after: int) -> AsyncIterator[str]:
        written_at = anyio.current_time()
        while True:
            news = self.runs.changes.news
            # The next page is read after the client has taken the last one, so a slow client costs no memory.
            rows, has_ended = await self._read(partial(_log_page, run=run, after=after), owner)
            for row in rows:
                after = row.n
                yield _event(row)
                written_at = anyio.current_time()
            if has_ended and not rows:
                return
            if not rows:
                # News of other runs do not postpone the comment.
                with anyio.CancelScope(deadline=written_at + KEEP_ALIVE_SECONDS) as silence:
                    await news.wait()
                if silence.cancelled_caught:
                    yield ": keep-alive\n\n"
                    written_at = anyio.current_time()

    async def _changed(self, request: Request, run: str, change: Json) -> Response:
        """What `show` answers, or else the change, which is written."""
        try:
            return await self.show(request, run)
        except RunsError:  # it has ended, and only its owner gets its answer
            pass
        except StoreError as error:
            log.error("runs_not_read", run=run, error=str(error))
        return await _json(lambda: change)

    def _caller(self, request: Request) -> Caller:
        return replace(http_caller(request), client=program_of(request, self.runs.mask))

    async def _read(self, work: Callable[[RunTables], Found], owner: str = "") -> Found:
        return await self.runs.store_or_error().read(work, owner)


def _log_page(tables: RunTables, run: str, after: int) -> tuple[list[LogRow], bool]:
    """The log entries after `after`, and whether the run had ended before they were read."""
    row = tables.row(run)
    return tables.log_after(after, run, _PAGE), row is None or row.state not in OPEN


def _event(row: LogRow) -> str:
    data = encode({"run_id": row.run, "at": iso(row.at), **row.call}).decode()
    return f"id: {row.n}\nevent: {row.kind}\ndata: {data}\n\n"


def _decider(request: Request) -> Decider:
    return decider_of_request(request, "http")


def _named(request: Request) -> tuple[str, str]:
    """The run in the path, by id or prefix, and the owner who asks for it."""
    return request.path_params.get("run", ""), http_caller(request).run_owner


async def _answer(handler: Handler, request: Request) -> Response:
    try:
        if request.method == "POST" and not request.scope["path"].startswith("/hooks/"):
            _check_media_type(request.headers)
        return await handler(request)
    except RunsError as error:
        code, message, hint = error.code, str(error), error.hint
    except OwnLimitError as error:
        code, message, hint = error.code, f"The run did not start: {error}", error.hint
    except StoreError as error:
        log.error("runs_not_served", error=str(error))  # clients must see no path of the host
        code, message, hint = "store_failed", "the store of runs cannot be used now", "Try again later."
    except ClientDisconnect:
        code, message, hint = "disconnected", "the request ended before its body", "Send it again."
    body: Json = {"error": {"code": code, "message": message, "hint": hint}}
    return await _json(lambda: body, _STATUSES.get(code, 400))


def _check_media_type(headers: Headers) -> None:
    """Raises RunsError. A request without a body needs no type, unless a page may have sent it."""
    given, length = headers.get("content-type"), headers.get("content-length", "0")
    is_bare = given is None and length == "0" and {"origin", "transfer-encoding"}.isdisjoint(headers.keys())
    if not is_bare and (given or "").partition(";")[0].strip().lower() != "application/json":
        message = f"the Content-Type is {(given or 'missing')[:60]!r}; it must be application/json"
        raise RunsError("unsupported_media_type", message, "Send JSON, with that header.")


async def _json(content: Callable[[], Json], status: int = 200, **headers: str) -> Response:
    # In a thread, because an answer may have ten megabytes.
    body = await anyio.to_thread.run_sync(lambda: encode(content()))
    return Response(body, status, {"Cache-Control": "no-store", **headers}, "application/json")


async def _body(request: Request, limit: int = MAX_BODY_BYTES) -> Json:
    """The body as JSON; an empty one is null. Raises RunsError."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RunsError("body_too_large", f"the body is longer than {limit:,} bytes", "Send less.")
    try:
        return parse(bytes(body)) if body.strip() else None
    except GuestJsonError as error:
        raise RunsError("invalid_json", f"the body is not valid JSON: {error}", "Send JSON.") from None
