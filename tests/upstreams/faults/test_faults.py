"""Faults of a server, or of a proxy before it, as callers see them, and how often the server acted.

`act` declares nothing and may never be sent twice; `look` is read-only and may. After every fault the upstream answers
again. While it floods, a healthy one beside it answers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from tests.upstreams.faults import http_server as faulty
from tests.upstreams.faults.http_server import Exchange, FaultyHttpServer, acted, rpc_error, status, words
from tests.upstreams.faults.http_server import Fault as Strike
from tests.upstreams.peers import DEADLINE_SECONDS, WatchedFleet, fleet_of, raw_server
from upstreams import health
from upstreams.errors import UpstreamError
from upstreams.health import FAILURES_IN_A_ROW
from upstreams.questions import MAX_ROUNDS
from upstreams.transports import messages
from upstreams.transports.messages import MAX_BUFFERED_MESSAGES

Seen: TypeAlias = tuple[str, str]
"""The code of a call's error, and its outcome."""

OK = ("ok", "done")
LOST = ("upstream_lost", "unknown")
LATE = ("upstream_timeout", "unknown")
UNREADABLE = ("upstream_answer", "unknown")
REFUSED = ("upstream_refused", "failed")
BUSY = ("upstream_busy", "failed")
HALFWAY = ("upstream_halfway", "unknown")
DOWN = ("upstream_unavailable", "not_started")

# Unanswered calls end at this deadline; a machine that is busy still answers the others within it.
CALL_SECONDS = 1.0


async def seen(fleet: WatchedFleet, tool: str, upstream: str = "one") -> Seen:
    """One call, with the tool's name as its idempotency key."""
    seconds = fleet[upstream].spec.call_seconds
    try:
        await fleet[upstream].call(tool, {}, seconds=seconds, key=tool)
    except UpstreamError as error:
        return error.code, error.outcome
    return OK


def connections(fleet: WatchedFleet) -> int:
    """How often the faulty upstream was ready."""
    return fleet.history.count(("one", "ready"))


@asynccontextmanager
async def served(server: FaultyHttpServer, **spec: Any) -> AsyncIterator[WatchedFleet]:
    async with server.serving(), fleet_of(one=HttpUpstream(url=server.url, **spec)) as fleet:
        yield fleet


@dataclass(frozen=True)
class Fault:
    """The outcome of a call that may not be repeated and of one that may; how often they arrived and acted."""

    name: str
    fault: Strike
    act: Seen
    look: Seen
    act_arrivals: int = 1
    look_arrivals: int = 1
    act_effects: int = 1
    look_effects: int = 1
    sessions: int = 1
    always: bool = False


def refusal(line: str, seen: Seen, **headers: str) -> Fault:
    """A status that says nothing was done, and that repeating would not change it."""
    fault = status(line, **headers)
    return Fault(line, fault, seen, seen, act_effects=0, look_effects=0)


def repeated(name: str, fault: Strike, act: Seen = LOST) -> Fault:
    """One after which the server may have acted, and has: only `look` is sent again."""
    return Fault(name, acted(fault), act, OK, look_arrivals=2, look_effects=2)


def unreadable(name: str, fault: Strike) -> Fault:
    """An answer that is none, and would be none again."""
    return Fault(name, fault, UNREADABLE, UNREADABLE)


def final(name: str, fault: Strike) -> Fault:
    """A refusal by a server that has acted all the same."""
    return Fault(name, acted(fault), REFUSED, REFUSED)


def retiring(name: str, fault: Strike) -> Fault:
    """A refusal that names the session, though the server has acted: the next call has a new session."""
    return Fault(name, acted(fault), REFUSED, OK, look_arrivals=2, look_effects=2, sessions=2)


def forgotten(name: str, fault: Strike) -> Fault:
    """The server reports that it no longer knows the session, so it did nothing."""
    return Fault(name, fault, OK, OK, sessions=2, **TWICE)


def halfway(name: str, fault: Strike, arrivals: int = 2, sessions: int = 1) -> Fault:
    """A call that was begun, and then went wrong: no part of it is done twice."""
    counts = {"act_arrivals": arrivals, "look_arrivals": arrivals, "sessions": sessions}
    return Fault(f"asks, then {name}", faulty.asking(fault), HALFWAY, HALFWAY, always=True, **counts)


GONE = "404 Not Found"
TWICE = {"act_arrivals": 2, "look_arrivals": 2}

HTTP_FAULTS = [
    refusal("429 Too Many Requests", BUSY, Retry_After="3600"),
    Fault("401 once", status("401 Unauthorized"), OK, OK, sessions=2, **TWICE),
    forgotten("forgotten session", faulty.forget_session),
    forgotten("404 and a strange id", rpc_error(GONE, -32600, "Session not found", id="server-error")),
    retiring("404 with its id", rpc_error(GONE, -32602, "the session is closed", with_id=True)),
    retiring("200 with its id", rpc_error("200 OK", -32001, "Session not found", with_id=True)),
    retiring("503 in words", words("503 Service Unavailable", "Unknown session")),
    final("404 with its id about the call", rpc_error(GONE, -32602, "Unknown tool", with_id=True)),
    final("400 and a strange id", rpc_error("400 Bad Request", -32600, "Not Acceptable", id="server-error")),
    refusal("403 Forbidden", REFUSED),
    Fault("500 with a result", faulty.result_with("500 Internal Server Error"), OK, OK),
    repeated("500", status("500 Internal Server Error"), UNREADABLE),
    repeated("500 as JSON-RPC", rpc_error("500 Oh", -32603, "oh", with_id=True), UNREADABLE),
    repeated("reset", faulty.reset),
    repeated("reset in the body", faulty.reset_in_the_body),
    repeated("no HTTP", faulty.no_http),
    repeated("event stream cut", faulty.event_stream_cut),
    Fault("hang", faulty.hang, LATE, LATE, act_effects=0, look_effects=0),
    Fault("event stream and silence", acted(faulty.event_stream_and_silence), LATE, LATE),
    unreadable("endless body", acted(faulty.body_that_never_ends)),
    unreadable("compressed bomb", acted(faulty.compressed_bomb)),
    unreadable("web page", acted(status("200 OK", b"<html>log in</html>", "text/html"))),
    unreadable("204", acted(status("204 No Content"))),
    unreadable("garbage as event", acted(faulty.event_stream_of_garbage)),
    unreadable("too many values", acted(faulty.too_many_values)),
    refusal("307 Temporary Redirect", REFUSED, Location="http://127.0.0.1:9/elsewhere"),
    Fault("redirect within the server", status("307 Temporary Redirect", Location="/mcp"), OK, OK, **TWICE),
    final("200 and an error without id", rpc_error("200 OK", -32603, "database is locked")),
    Fault("noise in the event stream", faulty.event_stream_with_noise, OK, OK),
    Fault("asks and goes on", faulty.asking(faulty.go_on), OK, OK, always=True, **TWICE),
    halfway("401", status("401 Unauthorized"), sessions=2),
    halfway("500", status("500 Internal Server Error")),
    halfway("again", faulty.ask, arrivals=MAX_ROUNDS + 2),
]


@pytest.mark.parametrize("fault", HTTP_FAULTS, ids=lambda fault: fault.name)
async def test_call_over_http_is_sent_again_only_if_it_may_be(fault: Fault) -> None:
    server = FaultyHttpServer(fault.fault, always=fault.always)
    seconds = CALL_SECONDS if LATE in (fault.act, fault.look) else DEADLINE_SECONDS
    async with served(server, call_seconds=float(seconds)) as fleet:
        assert await seen(fleet, "act") == fault.act
        assert (server.arrivals["act"], server.effects["act"]) == (fault.act_arrivals, fault.act_effects)
        await fleet.until(lambda: connections(fleet) == fault.sessions)
        assert await seen(fleet, "fine") == OK
        assert len(server.sessions) == fault.sessions
        server.keys.clear()
        assert await seen(fleet, "look") == fault.look
        assert (server.arrivals["look"], server.effects["look"]) == (fault.look_arrivals, fault.look_effects)
        assert {*server.keys} == {"look"}
        assert await seen(fleet, "fine") == OK


async def test_unfinished_events_of_one_connection_are_limited_together() -> None:
    message_bytes, found = 65_536, list[Seen]()
    server = FaultyHttpServer(faulty.unfinished_events(message_bytes), always=True)
    async with served(server, message_bytes=message_bytes) as fleet:

        async def call() -> None:
            found.append(await seen(fleet, "act"))
            if len(found) == 2:
                server.may_go_on.set()

        async with anyio.create_task_group() as tasks:
            for _ in range(MAX_BUFFERED_MESSAGES + 2):
                tasks.start_soon(call)
        assert found == [UNREADABLE] * 2 + [OK] * MAX_BUFFERED_MESSAGES
        assert await seen(fleet, "fine") == OK


async def test_stream_that_breaks_off_is_asked_for_again_once_a_second() -> None:
    server = FaultyHttpServer(faulty.event_stream_broken_off)
    async with served(server, call_seconds=CALL_SECONDS) as fleet:
        assert await seen(fleet, "act") == LATE
        assert server.resumptions <= CALL_SECONDS + 1


@asynccontextmanager
async def beside_a_healthy_one(
    spec: HttpUpstream | StdioUpstream, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WatchedFleet]:
    """A flood is soon too much, and a circuit that opened may be probed at once."""
    monkeypatch.setattr(messages, "UNSOLICITED_AT_ONCE", 1_000.0)
    monkeypatch.setattr(health, "FIRST_OPEN_SECONDS", 0.0)
    async with (
        FaultyHttpServer().serving() as healthy,
        fleet_of(one=spec, healthy=HttpUpstream(url=healthy.url)) as fleet,
    ):
        yield fleet


async def assert_cut_off_alone(fleet: WatchedFleet) -> None:
    """A flood in answer to `act` ends its call; the healthy upstream answers meanwhile."""
    found = list[Seen]()

    async def call() -> None:
        found.append(await seen(fleet, "act"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        assert [await seen(fleet, "fine", "healthy") for _ in range(10)] == [OK] * 10
    assert found == [UNREADABLE]


FLOODS = {
    "body in drops": faulty.in_drops("application/json"),
    "events in drops": faulty.in_drops("text/event-stream"),
    "comments": faulty.flood_of_events(b":\n"),
    "data without end": faulty.flood_of_events(b"data: x\n"),
    "notices": faulty.flood_of_events(faulty.notice(10)),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
async def test_endless_answer_is_cut_off(flood: Strike, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FaultyHttpServer(acted(flood))
    async with server.serving(), beside_a_healthy_one(HttpUpstream(url=server.url), monkeypatch) as fleet:
        await assert_cut_off_alone(fleet)
        await fleet.until(lambda: fleet.one.state.status == "failing")
        assert await seen(fleet, "fine") == OK
        assert server.arrivals["act"] == 1


async def test_endless_stream_that_nobody_asked_for_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FaultyHttpServer()

    async def flood_once(exchange: Exchange) -> None:
        server.unasked = None
        await FLOODS["data without end"](exchange)

    server.unasked = flood_once
    async with server.serving(), beside_a_healthy_one(HttpUpstream(url=server.url), monkeypatch) as fleet:
        await fleet.until(lambda: fleet.one.state.status == "failing")
        assert await seen(fleet, "fine") == OK


def noted(folder: Path, *words: str) -> list[list[str]]:
    """The lines of the stdio server's journal that begin so."""
    lines = [line.split() for line in (folder / "journal").read_text().splitlines()]
    return [line for line in lines if line[: len(words)] == list(words)]


def child(folder: Path, **behaviour: Any) -> StdioUpstream:
    return raw_server(journal=str(folder / "journal"), **behaviour)


@dataclass(frozen=True)
class StdioFault:
    """The outcomes of both calls; how often `look` arrived, both acted, and the server was started."""

    name: str
    act: Seen
    look: Seen
    arrivals: int = 1
    effects: int = 1
    look_effects: int = 1
    reconnects: bool = False


STDIO_FAULTS = [
    StdioFault("stop_reading", LATE, LATE, effects=0, look_effects=0, reconnects=True),
    StdioFault("crash_in_the_answer", LOST, OK, arrivals=2, look_effects=2, reconnects=True),
    StdioFault("close_stdout", LOST, OK, arrivals=2, look_effects=2, reconnects=True),
    StdioFault("answer_what_nobody_asked", OK, OK),
    StdioFault("flood_stderr_lines", OK, OK),
    StdioFault("much_progress", OK, OK),
]


@pytest.mark.parametrize("fault", STDIO_FAULTS, ids=lambda fault: fault.name)
async def test_call_over_stdio_is_sent_again_only_if_it_may_be(tmp_path: Path, fault: StdioFault) -> None:
    seconds = CALL_SECONDS if LATE in (fault.act, fault.look) else DEADLINE_SECONDS
    spec = child(tmp_path, fault=fault.name).model_copy(update={"call_seconds": seconds})
    async with fleet_of(one=spec) as fleet:
        assert await seen(fleet, "act") == fault.act
        assert len(noted(tmp_path, "arrival", "act")) == 1
        assert len(noted(tmp_path, "effect", "act")) == fault.effects
        await assert_recovered(fleet, tmp_path, 1 + fault.reconnects)
        assert await seen(fleet, "look") == fault.look
        assert [key for *_, key in noted(tmp_path, "arrival", "look")] == ["look"] * fault.arrivals
        assert len(noted(tmp_path, "effect", "look")) == fault.look_effects
        await assert_recovered(fleet, tmp_path, 1 + 2 * fault.reconnects)


async def assert_recovered(fleet: WatchedFleet, folder: Path, starts: int) -> None:
    """The upstream answers again, on a new connection only where the old one was of no use."""
    await fleet.until(lambda: connections(fleet) >= starts)
    assert await seen(fleet, "fine") == OK
    assert len(noted(folder, "start")) == starts


@pytest.mark.parametrize("fault", ["too_long", "never_ending_line", "flood_stdout"])
async def test_server_that_sends_too_much_is_cut_off(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beside_a_healthy_one(child(tmp_path, fault=fault), monkeypatch) as fleet:
        await assert_cut_off_alone(fleet)
        await fleet.until(lambda: fleet.one.state.status == "failing")
        assert "sent" in fleet.one.state.detail
        assert await seen(fleet, "fine") == OK
        assert fleet.one.state.status == "ready"
        assert len(noted(tmp_path, "arrival", "act")) == 1
        assert len(noted(tmp_path, "start")) == 2


async def test_calls_to_a_server_that_closed_its_stdin_go_to_its_next_connection(tmp_path: Path) -> None:
    found = list[Seen]()
    async with fleet_of(one=child(tmp_path, fault="close_stdin")) as fleet:
        assert await seen(fleet, "act") == OK

        async def call() -> None:
            found.append(await seen(fleet, "fine"))

        async with anyio.create_task_group() as tasks:
            for _ in range(2 * FAILURES_IN_A_ROW):
                tasks.start_soon(call)
        assert found == [OK] * len(noted(tmp_path, "arrival", "fine")) == [OK] * 2 * FAILURES_IN_A_ROW
        assert len(noted(tmp_path, "start")) == 2


STARTS: dict[str, tuple[dict[str, Json], Seen]] = {
    "nonsense version": ({"handshake": {"protocolVersion": "9999-99-99"}}, DOWN),
    "handshake refused": ({"refuses_with": "not today"}, DOWN),
    "flood": ({"fault": "flood_at_start"}, DOWN),
    "log": ({"banner": "\n".join(f"[INFO] loading {number}" for number in range(1_000))}, OK),
}


@pytest.mark.parametrize(("behaviour", "expected"), STARTS.values(), ids=STARTS.keys())
async def test_fault_of_the_start(tmp_path: Path, behaviour: dict[str, Json], expected: Seen) -> None:
    async with fleet_of(one=child(tmp_path, **{"fault": "none", **behaviour})) as fleet:
        assert await seen(fleet, "fine") == expected
        assert len(noted(tmp_path, "arrival")) == (1 if expected == OK else 0)
