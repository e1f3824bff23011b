"""Answers that are not all there yet may hold so much memory, and no more."""

from typing import Any

import anyio
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from manifests.upstream_sections import HttpUpstream, UpstreamSection
from tests.upstreams.peers import DEADLINE_SECONDS, WatchedFleet, fleet_of, http_peer, raw_server
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams import fleet as fleets
from upstreams.circuit import FAILURES_IN_A_ROW
from upstreams.errors import UpstreamLostError, UpstreamRoomError, UpstreamTimeoutError
from upstreams.room import MIB, Held, Room
from upstreams.steps import STEP_BYTES

pytestmark = pytest.mark.anyio

LARGE = STEP_BYTES * 20
HALF_READ_SECONDS = 0.5


def test_small_answers_take_no_room() -> None:
    room = Room(0)
    assert Held(room).fits(STEP_BYTES)
    assert not Held(room).fits(STEP_BYTES + 1)


def test_what_one_upstream_holds_is_not_there_for_others_until_it_is_given_back() -> None:
    portal = Room(LARGE)
    one, other = Held(Room(LARGE, portal)), Held(Room(LARGE, portal))
    assert one.fits(LARGE)
    with pytest.raises(UpstreamRoomError) as caught:
        other.hold(LARGE)
    assert (caught.value.code, caught.value.outcome) == ("upstream_answer", "unknown")
    one.release()
    one.release()
    other.hold(LARGE)
    assert portal.held_bytes == LARGE - STEP_BYTES


def test_an_upstream_that_fills_its_own_room_leaves_that_of_others() -> None:
    portal = Room(3 * LARGE)
    room = Room(LARGE, portal)
    assert Held(room).fits(LARGE)
    assert not Held(room).fits(LARGE)
    assert Held(Room(LARGE, portal)).fits(LARGE)


def test_what_does_not_grow_on_holds_what_it_held() -> None:
    room = Room(LARGE)
    held = Held(room)
    assert held.fits(LARGE)
    assert not held.fits(2 * LARGE + STEP_BYTES)
    assert room.held_bytes == LARGE - STEP_BYTES
    assert held.fits(0)
    assert room.held_bytes == 0


def test_answer_that_does_not_fit_leaves_its_room_to_others_at_once() -> None:
    room = Room(2 * LARGE)
    one, other = Held(room), Held(room)
    one.hold(LARGE)
    other.hold(LARGE)
    with pytest.raises(UpstreamRoomError):
        one.hold(2 * LARGE)
    other.hold(2 * LARGE)


def test_error_of_an_answer_that_does_not_fit_says_how_much_would_have() -> None:
    portal = Room(12 * MIB)
    room = Room(8 * MIB, portal)
    one, other = Held(room), Held(room)
    one.hold(5 * MIB + STEP_BYTES)
    other.hold(MIB + STEP_BYTES)
    with pytest.raises(UpstreamRoomError, match=r"\b3\.0 MiB fit"):
        other.hold(4 * MIB)
    assert Held(portal).fits(6 * MIB)
    with pytest.raises(UpstreamRoomError, match=r"\b1\.1 MiB fit"):
        other.hold(4 * MIB)


def test_answer_that_nobody_waits_for_does_not_become_large() -> None:
    held = Held(Room(LARGE))
    held.abandon()
    held.hold(STEP_BYTES)
    with pytest.raises(UpstreamLostError):
        held.hold(LARGE)


class HoldsBack(RawHttpServer):
    """Sends half of an answer of `LARGE` bytes, as JSON or as an event, and the rest when it may."""

    def __init__(self, *, as_event: bool) -> None:
        super().__init__()
        self.may_end = anyio.Event()
        self.answer_bytes = LARGE
        self._as_event = as_event

    async def _call(self, message: dict[str, Any]) -> Response:
        if message["method"] == "ping":
            return self._answer(message, "{}")
        text = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}'
        whole = (text % (message["id"], "x" * self.answer_bytes)).encode()
        return _InHalves(b"data: %s\n\n" % whole if self._as_event else whole, self._as_event, self.may_end)


class _InHalves(Response):
    def __init__(self, whole: bytes, as_event: bool, may_end: anyio.Event) -> None:
        super().__init__(media_type="text/event-stream" if as_event else "application/json")
        self._whole = whole
        self._may_end = may_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        half = len(self._whole) * 3 // 4
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._whole[:half], "more_body": True})
        await self._may_end.wait()
        await send({"type": "http.response.body", "body": self._whole[half:]})


BOTH_FORMS = pytest.mark.parametrize("as_event", [False, True], ids=["json", "event"])


def room_for(monkeypatch: pytest.MonkeyPatch, answers: int) -> None:
    monkeypatch.setattr(fleets, "UPSTREAM_BYTES", answers * LARGE)


def spec_of(port: int) -> UpstreamSection:
    return HttpUpstream(url=f"http://127.0.0.1:{port}/mcp")


async def call(fleet: WatchedFleet, seconds: float = DEADLINE_SECONDS) -> int:
    """Of how many characters the answer is."""
    result = await fleet["one"].call("echo", {}, seconds=seconds)
    return len(result.content[0]["text"])


@BOTH_FORMS
async def test_call_whose_answer_does_not_fit_says_so_and_the_others_are_answered(
    as_event: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_for(monkeypatch, answers=2)
    server = HoldsBack(as_event=as_event)
    ends: list[int | str] = []
    async with http_peer(server.app) as peer, fleet_of(one=spec_of(peer.port)) as fleet:

        async def note() -> None:
            try:
                ends.append(await call(fleet))
            except UpstreamRoomError as error:
                ends.append(error.code)
                server.may_end.set()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(note)
        assert ends == ["upstream_answer", LARGE, LARGE]
        assert [await call(fleet) for _ in range(3)] == [LARGE] * 3, "nothing is held any more"


@BOTH_FORMS
async def test_what_was_read_of_a_call_that_is_given_up_is_let_go(
    as_event: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_for(monkeypatch, answers=1)
    server = HoldsBack(as_event=as_event)
    async with http_peer(server.app) as peer, fleet_of(one=spec_of(peer.port)) as fleet:
        for _ in range(3):
            with pytest.raises(UpstreamTimeoutError):
                await call(fleet, HALF_READ_SECONDS)
        server.may_end.set()
        assert await call(fleet) == LARGE


async def test_answers_that_do_not_fit_do_not_open_the_circuit(monkeypatch: pytest.MonkeyPatch) -> None:
    room_for(monkeypatch, answers=1)
    server = HoldsBack(as_event=False)
    server.answer_bytes = 2 * LARGE
    async with http_peer(server.app) as peer, fleet_of(one=spec_of(peer.port)) as fleet:
        for _ in range(FAILURES_IN_A_ROW + 1):
            with pytest.raises(UpstreamRoomError):
                await call(fleet)


async def test_line_of_a_child_that_does_not_fit_is_an_error_of_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room_for(monkeypatch, answers=1)
    async with fleet_of(one=raw_server()) as fleet:
        for _ in range(2):
            with pytest.raises(UpstreamRoomError):
                await fleet["one"].call("echo", {"text": "x" * 3 * LARGE}, seconds=DEADLINE_SECONDS)
            text = "x" * (LARGE // 2)
            result = await fleet["one"].call("echo", {"text": text}, seconds=DEADLINE_SECONDS)
            assert text in result.content[0]["text"]
