"""Faults of a server, or of a proxy before it, as a script sees them, and how often the server acted.

`act` declares nothing and may never be sent twice; `look` is read-only and may. Beside every fault a healthy upstream
answers, and afterwards the faulty one does, too.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from tests.upstreams.faults import http_server as faulty
from tests.upstreams.faults.bench import Bench, Seen, bench, noted, stdio_entry
from tests.upstreams.faults.http_server import Exchange, FaultyHttpServer, acted, rpc_error, status, words
from tests.upstreams.faults.http_server import Fault as Strike
from upstreams import health
from upstreams.health import FAILURES_IN_A_ROW
from upstreams.questions import MAX_ROUNDS
from upstreams.transports.messages import MAX_BUFFERED_MESSAGES

OK = Seen("ok", "done")
LOST = Seen("upstream_lost", "unknown")
LATE = Seen("upstream_timeout", "unknown")
UNREADABLE = Seen("upstream_answer", "unknown")
REFUSED = Seen("upstream_refused", "failed")
BUSY = Seen("upstream_busy", "failed")
HALFWAY = Seen("upstream_halfway", "unknown")
GONE_FOR_GOOD = Seen("upstream_unavailable", "refused")

# Unanswered calls end at this deadline; a machine that is busy still answers the others within it.
CALL_SECONDS = 1.0


@pytest.fixture
def open_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A circuit that opened may be probed at once."""
    monkeypatch.setattr(health, "FIRST_OPEN_SECONDS", 0.0)


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


def retiring(name: str, fault: Strike, act_effects: int = 1) -> Fault:
    """A refusal that names the session, though the server may have acted: the next call has a new session."""
    return Fault(
        name,
        fault,
        REFUSED,
        OK,
        act_effects=act_effects,
        look_arrivals=2,
        look_effects=act_effects + 1,
        sessions=2,
    )


def forgotten(name: str, fault: Strike) -> Fault:
    """The server reports that it no longer knows the session, so it did nothing."""
    return Fault(name, fault, OK, OK, sessions=2, **TWICE)


def halfway(name: str, fault: Strike, arrivals: int = 2, sessions: int = 1) -> Fault:
    """A call that was begun, and then went wrong: no part of it is done twice."""
    return Fault(
        f"asks, then {name}",
        faulty.asking(fault),
        HALFWAY,
        HALFWAY,
        act_arrivals=arrivals,
        look_arrivals=arrivals,
        sessions=sessions,
        always=True,
    )


BAD = "400 Bad Request"
GONE = "404 Not Found"
NOW = {"Retry_After": "0"}
TWICE = {"act_arrivals": 2, "look_arrivals": 2}

HTTP_FAULTS = [
    Fault("429", status("429 Too Many Requests", **NOW), OK, OK, **TWICE),
    refusal("429 Too Many Requests", BUSY, Retry_After="3600"),
    Fault("401 once", status("401 Unauthorized"), OK, OK, sessions=2, **TWICE),
    Fault("forgotten session", faulty.forget_session, OK, OK, sessions=2, **TWICE),
    forgotten("400 without id", rpc_error(BAD, -32000, "Bad Request: Session not found")),
    forgotten("404 and a strange id", rpc_error(GONE, -32600, "Session not found", id="server-error")),
    retiring("404 with its id", acted(rpc_error(GONE, -32602, "the session is closed", with_id=True))),
    retiring("200 with its id", acted(rpc_error("200 OK", -32001, "Session not found", with_id=True))),
    retiring("503 in words", words("503 Service Unavailable", "Unknown session"), act_effects=0),
    final("404 with its id about the call", rpc_error(GONE, -32602, "Unknown tool", with_id=True)),
    final("400 and a strange id", rpc_error(BAD, -32600, "Not Acceptable", id="server-error")),
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
    halfway("a forgotten session", faulty.forget_session, sessions=2),
    halfway("again", faulty.ask, arrivals=MAX_ROUNDS + 2),
]


@asynccontextmanager
async def struck(folder: Path, fault: Fault) -> AsyncIterator[tuple[FaultyHttpServer, Bench]]:
    """A server with this fault, behind a pipeline."""
    seconds = CALL_SECONDS if LATE in (fault.act, fault.look) else 30
    server = FaultyHttpServer(fault.fault, always=fault.always)
    async with server.serving(), bench(folder, {"url": server.url, "call_seconds": seconds}) as bench_:
        yield server, bench_


@pytest.mark.parametrize("fault", HTTP_FAULTS, ids=lambda fault: fault.name)
async def test_call_over_http_is_sent_again_only_if_it_may_be(tmp_path: Path, fault: Fault) -> None:
    async with struck(tmp_path, fault) as (server, bench_):
        assert await bench_.call_beside("faulty.act") == fault.act
        assert (server.arrivals["act"], server.effects["act"]) == (fault.act_arrivals, fault.act_effects)
        await bench_.watched.until(lambda: bench_.connections == fault.sessions)
        assert await bench_.call("faulty.fine") == OK
        assert len(server.sessions) == fault.sessions
        server.keys.clear()
        assert await bench_.call("faulty.look") == fault.look
        arrived = (server.arrivals["look"], server.effects["look"])
        assert arrived == (fault.look_arrivals, fault.look_effects)
        assert len(set(server.keys)) == 1
        assert await bench_.call("faulty.fine") == OK


@pytest.mark.usefixtures("open_no_longer")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_body_in_drops_is_cut_off(tmp_path: Path, kind: str) -> None:
    server = FaultyHttpServer(acted(faulty.in_drops(kind)))
    async with server.serving(), bench(tmp_path, {"url": server.url}) as bench_:
        assert await bench_.call_beside("faulty.act") == UNREADABLE
        await bench_.until("failing")
        assert await bench_.call("faulty.fine") == OK


async def test_unfinished_events_of_one_connection_are_limited_together(tmp_path: Path) -> None:
    message_bytes, seen = 65_536, list[Seen]()
    server = FaultyHttpServer(faulty.unfinished_events(message_bytes), always=True)
    async with (
        server.serving(),
        bench(tmp_path, {"url": server.url, "message_bytes": message_bytes}) as bench_,
    ):

        async def call() -> None:
            seen.append(await bench_.call("faulty.act"))
            if len(seen) == 2:
                server.may_go_on.set()

        async with anyio.create_task_group() as tasks:
            for _ in range(MAX_BUFFERED_MESSAGES + 2):
                tasks.start_soon(call)
        assert seen == [UNREADABLE] * 2 + [OK] * MAX_BUFFERED_MESSAGES
        assert await bench_.call("faulty.fine") == OK


FLOODS = {"comments": b":\n", "data without end": b"data: x\n", "notices": faulty.notice(10_000)}


@pytest.mark.parametrize("is_asked_for", [True, False], ids=["answer", "unasked"])
@pytest.mark.parametrize("unit", FLOODS.values(), ids=FLOODS.keys())
@pytest.mark.usefixtures("open_no_longer")
async def test_endless_stream_of_events_is_cut_off(tmp_path: Path, unit: bytes, is_asked_for: bool) -> None:
    flood = faulty.flood_of_events(unit)
    server = FaultyHttpServer(acted(flood) if is_asked_for else Exchange.succeed)

    async def flood_once(exchange: Exchange) -> None:
        server.unasked = None
        await flood(exchange)

    server.unasked = None if is_asked_for else flood_once
    async with server.serving(), bench(tmp_path, {"url": server.url}) as bench_:
        if is_asked_for:
            assert await bench_.call_beside("faulty.act") == UNREADABLE
        await bench_.until("failing")
        assert await bench_.call("faulty.fine") == OK
        assert server.arrivals["act"] == is_asked_for


async def test_stream_that_breaks_off_is_asked_for_again_once_a_second(tmp_path: Path) -> None:
    fault = Fault("broken off", faulty.event_stream_broken_off, LATE, LATE)
    async with struck(tmp_path, fault) as (server, bench_):
        assert await bench_.call("faulty.act") == LATE
        assert server.resumptions <= CALL_SECONDS + 1


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
    StdioFault("hang_after_acting", LATE, LATE),
    StdioFault("stop_reading", LATE, LATE, effects=0, look_effects=0, reconnects=True),
    StdioFault("crash_before_acting", LOST, OK, arrivals=2, effects=0, reconnects=True),
    StdioFault("crash_in_the_answer", LOST, OK, arrivals=2, look_effects=2, reconnects=True),
    StdioFault("close_stdout", LOST, OK, arrivals=2, look_effects=2, reconnects=True),
    StdioFault("answer_what_nobody_asked", OK, OK),
    StdioFault("flood_stderr_lines", OK, OK),
    StdioFault("much_progress", OK, OK),
    StdioFault("tool_is_gone", REFUSED, REFUSED, effects=0, look_effects=0),
    StdioFault("error_without_sense", REFUSED, REFUSED, effects=0, look_effects=0),
]


@pytest.mark.parametrize("fault", STDIO_FAULTS, ids=lambda fault: fault.name)
async def test_call_over_stdio_is_sent_again_only_if_it_may_be(tmp_path: Path, fault: StdioFault) -> None:
    seconds = CALL_SECONDS if LATE in (fault.act, fault.look) else 30
    entry = {**stdio_entry(tmp_path, fault.name), "call_seconds": seconds}
    async with bench(tmp_path, entry) as bench_:
        assert await bench_.call_beside("faulty.act") == fault.act
        assert len(noted(tmp_path, "arrival", "act")) == 1
        assert len(noted(tmp_path, "effect", "act")) == fault.effects
        await assert_recovered(bench_, tmp_path, 1 + fault.reconnects)
        assert await bench_.call_beside("faulty.look") == fault.look
        arrivals = noted(tmp_path, "arrival", "look")
        assert (len(arrivals), len({key for *_, key in arrivals})) == (fault.arrivals, 1)
        assert len(noted(tmp_path, "effect", "look")) == fault.look_effects
        await assert_recovered(bench_, tmp_path, 1 + 2 * fault.reconnects)


async def assert_recovered(bench_: Bench, folder: Path, connections: int) -> None:
    """The faulty upstream answers again, on a new connection only where the old one was of no use."""
    await bench_.watched.until(lambda: bench_.connections >= connections)
    assert await bench_.call("faulty.fine", n=7) == OK
    assert len(noted(folder, "start")) == connections


@pytest.mark.parametrize("fault", [
    "too_long", "garbage_with_the_id", "never_ending_line", "flood_notices", "flood_stdout", "flood_requests",
])  # fmt: skip
@pytest.mark.usefixtures("open_no_longer")
async def test_server_that_sends_too_much_is_cut_off(tmp_path: Path, fault: str) -> None:
    async with bench(tmp_path, stdio_entry(tmp_path, fault)) as bench_:
        assert await bench_.call_beside("faulty.act") == UNREADABLE
        await bench_.until("failing")
        assert "sent" in bench_.watched["faulty"].state.detail
        assert await bench_.call("faulty.fine") == OK
        assert bench_.watched["faulty"].state.status == "ready"
        assert len(noted(tmp_path, "arrival", "act")) == 1
        assert len(noted(tmp_path, "start")) == 2


async def test_calls_to_a_server_that_closed_its_stdin_go_to_its_next_connection(tmp_path: Path) -> None:
    async with bench(tmp_path, stdio_entry(tmp_path, "close_stdin")) as bench_:
        assert await bench_.call("faulty.act") == OK
        async with anyio.create_task_group() as tasks:
            for number in range(2 * FAILURES_IN_A_ROW):
                tasks.start_soon(lambda n: bench_.call("faulty.fine", n=n), number)
        assert {row["state"] for row in bench_.ledger()} == {"done"}
        assert len(noted(tmp_path, "arrival", "fine")) == 2 * FAILURES_IN_A_ROW
        assert len(noted(tmp_path, "start")) == 2


STARTS: dict[str, tuple[dict[str, Json], Seen]] = {
    "exit": ({"exits_with": 3}, GONE_FOR_GOOD),
    "silence": ({"waits_for": "FIFO", "connect_seconds": 1}, GONE_FOR_GOOD),
    "nonsense version": ({"handshake": {"protocolVersion": "9999-99-99"}}, GONE_FOR_GOOD),
    "handshake refused": ({"refuses_with": "not today"}, GONE_FOR_GOOD),
    "listing refused": ({"tools_error": {"code": -32603, "message": "no tools today"}}, GONE_FOR_GOOD),
    "flood": ({"fault": "flood_at_start"}, GONE_FOR_GOOD),
    "log": ({"banner": "\n".join(f"[INFO] loading {number}" for number in range(1_000))}, OK),
}


@pytest.mark.parametrize(("behaviour", "seen"), STARTS.values(), ids=STARTS.keys())
async def test_fault_of_the_start(tmp_path: Path, behaviour: dict[str, Json], seen: Seen) -> None:
    os.mkfifo(tmp_path / "fifo")
    if "waits_for" in behaviour:
        behaviour = {**behaviour, "waits_for": str(tmp_path / "fifo")}
    async with bench(tmp_path, stdio_entry(tmp_path, **behaviour)) as bench_:
        assert await bench_.call_beside("faulty.fine") == seen
        assert len(noted(tmp_path, "arrival")) == (1 if seen == OK else 0)
