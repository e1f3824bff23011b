"""The way of a call is one tuple. Its order is what security depends on, and no step of it can be skipped."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from manifests.json_value import Json
from portal.base.caller import LOCAL
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.fetch import Fetchers
from portal.calls.pipeline import WAY, Pipeline, send
from portal.calls.run import Attempt, RunContext, Step, Steps
from portal.middleware import BrokerCall, CallError, Next, Outcome
from portal.records.audit.audit import Audit, RunAudit
from portal.records.ledger import Entry
from sandbox_runtime.call_port import ToolCall
from tests.portal.app.test_reload import reload
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, raw, tool
from upstreams.errors import UpstreamSignInError

ORDER = [
    *("resume", "search", "trace", "journal", "wait", "middleware", "resources", "fallback"),
    *("authorize", "ask", "ready", "intend", "record", "send"),
]
ATTEMPT = ORDER[ORDER.index("authorize") :]


@pytest.fixture(scope="module")
def peer() -> Peer:
    reads = {"readOnlyHint": True}
    tools = tool("read", annotations=reads), tool("look", annotations=reads), tool("asks"), tool("denied")
    return Peer(tool("write"), *tools)


@pytest.fixture(scope="module")
async def portal(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    upstreams: dict[str, Peer | dict[str, Json]] = {"up": peer, "down": raw(exits_with=3)}
    sections: dict[str, Json] = {
        "capabilities": {"tools": {"ask": ["up.asks", "up.look"], "deny": ["up.denied"]}},
        "fallback": {
            "down.write": ["up.write", "up.read"],
            "down.asks": ["up.look"],
            "down.x": ["up.denied"],
        },
    }
    async with opened(tmp_path_factory.mktemp("way"), upstreams, **sections) as portal:
        await portal.search()  # which waits for the upstreams
        yield portal


@dataclass
class Journal:
    """What the steps need of a journal. It writes intents, or fails to."""

    can_write: bool = True
    intended: int = 0

    def opened(self, entry: Entry) -> None: ...

    def known_outcome(self, entry: Entry) -> Outcome | None:
        return None

    async def is_decided(self, seq: int, function: str) -> bool:
        return False

    async def call(self, entry: Entry, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        return await work()

    async def intend(self, seq: int, function: str) -> CallError | None:
        self.intended += 1
        return None if self.can_write else CallError("journal_failed", "no")

    def is_held(self, seq: int) -> bool:
        return True


class Earlier(Journal):
    """A journal in which an earlier segment wrote the outcome."""

    def known_outcome(self, entry: Entry) -> Outcome | None:
        return Outcome(value="of then")


class Decided(Journal):
    """A journal in which a person decided about the call, for a rule that is gone."""

    async def is_decided(self, seq: int, function: str) -> bool:
        return True


class Unread(Journal):
    """A journal whose store cannot be read now."""

    async def is_decided(self, seq: int, function: str) -> bool:
        if function == "up.asks":
            await anyio.sleep_forever()
        return False


@dataclass
class Person:
    """Decides about every call."""

    approves: bool

    async def __call__(self, call: ToolCall, entry: Entry) -> Outcome:
        return Outcome(value="waited")

    async def approval(self, call: ToolCall, *_: object) -> dict[str, Json] | CallError:
        return call.arguments if self.approves else CallError("denied", "no")


class Unwritten(Audit):
    """A log in a database that is lost after it took the lines."""

    is_written = False

    @property
    def batch(self) -> Any:
        return self

    async def written(self) -> bool:
        return False


class SignedOut(CallerUpstreams):
    async def ready(self, name: str, *, may_ask: bool = True) -> None:
        raise UpstreamSignInError("sign in first")


async def answers(call: BrokerCall, next: Next) -> Outcome:
    return Outcome(value="mine")


async def vetoes(call: BrokerCall, next: Next) -> Outcome:
    return Outcome(error=CallError("vetoed", "no"))


async def changes(call: BrokerCall, next: Next) -> Outcome:
    return await next(replace(call, arguments={"path": "changed"}))


def noting(entered: list[str]) -> Steps:
    """The steps of a call, each noted when it begins."""

    def noted(step: Step) -> Step:
        async def begin(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
            entered.append(step.__name__)
            return await step(run, attempt, rest)

        return begin

    return tuple(map(noted, WAY))


async def way_of(
    portal: Opened, function: str, *middleware: Any, audit: RunAudit | None = None, **context: Any
) -> tuple[list[str], Outcome, Entry]:
    """The steps that a call took, its outcome and its entry in the ledger."""
    entered: list[str] = []
    calls = await portal.calls(*middleware, **({} if audit is None else {"audit": audit}))
    calls = Pipeline(replace(calls.run, **context), noting(entered))
    calls.open(1, function)
    outcome = await calls(ToolCall(1, function, {}))
    return entered, outcome, calls.run.ledger[1]


def test_the_steps_are_in_this_order() -> None:
    assert [step.__name__ for step in WAY] == ORDER


@pytest.mark.parametrize("function", ["up.write", "up.read", "up.asks"])
async def test_a_call_that_is_sent_took_every_step(portal: Opened, peer: Peer, function: str) -> None:
    before, journal = len(peer.calls), Journal()
    way, outcome, entry = await way_of(portal, function, changes, journal=journal, waits=Person(True))
    assert (way, outcome.error, entry.state) == (ORDER, None, "done")
    assert journal.intended == (function != "up.read"), "a call that may be repeated needs no intent"
    # An approval is of what the person saw.
    assert peer.calls[before:] == [(function.removeprefix("up."), {"path": "changed"})]


UNWRITTEN = Unwritten(None).run("run_1", LOCAL, None)


@pytest.mark.parametrize(
    ("last", "code", "function", "middleware", "context"),
    [
        ("resume", None, "up.write", (), {"journal": Earlier()}),
        ("wait", None, "portal.sleep", (), {"waits": Person(True)}),
        ("middleware", None, "up.write", (answers,), {}),
        ("middleware", "vetoed", "up.write", (vetoes,), {}),
        ("resources", "invalid_arguments", "portal.read_resource", (changes,), {}),
        ("authorize", "not_granted", "up.denied", (), {"waits": Person(True)}),
        ("authorize", "unknown_function", "up.nothing", (), {"waits": Person(True)}),
        ("ask", "denied", "up.asks", (), {"waits": Person(False)}),
        ("ask", "denied", "up.write", (), {"waits": Person(False), "journal": Decided()}),
        ("ask", "approval_required", "up.asks", (), {}),
        ("intend", "journal_failed", "up.write", (), {"journal": Journal(can_write=False)}),
        ("record", "audit_failed", "up.write", (), {"audit": UNWRITTEN}),
    ],
)
async def test_a_step_that_answers_or_refuses_is_the_last(
    portal: Opened, peer: Peer, last: str, code: str | None, function: str, middleware: Any, context: Any
) -> None:
    before = len(peer.calls)
    way, outcome, _ = await way_of(portal, function, *middleware, **context)
    assert (way[-1], outcome.error and outcome.error.code) == (last, code)
    assert way == ORDER[: ORDER.index(last) + 1]
    assert len(peer.calls) == before


async def test_who_is_not_signed_in_leaves_no_intent(portal: Opened, peer: Peer) -> None:
    before, journal = len(peer.calls), Journal()
    own = SignedOut(portal.portal.accounts, portal.portal.manifest)
    way, outcome, _ = await way_of(portal, "up.write", journal=journal, own=own)
    assert way[-1] == "ready" and outcome.error is not None
    assert (journal.intended, len(peer.calls)) == (0, before)


@pytest.mark.parametrize(
    ("function", "ways", "state"),
    [
        ("down.write", [ATTEMPT[:1], ATTEMPT], "done"),  # up.write is skipped: it does not only read
        ("down.asks", [ATTEMPT[:1], ATTEMPT[:2]], "refused"),  # no person is asked about another function
        ("down.x", [ATTEMPT[:1]] * 2, "refused"),
        ("down.nothing", [ATTEMPT[:1]], "refused"),
    ],
)
async def test_a_fallback_is_an_attempt_of_its_own(
    portal: Opened, peer: Peer, function: str, ways: list[list[str]], state: str
) -> None:
    before = len(peer.calls)
    way, _, entry = await way_of(portal, function, waits=Person(True))
    assert way == [*ORDER[: ORDER.index("authorize")], *(step for attempt in ways for step in attempt)]
    assert (entry.state, len(peer.calls) - before) == (state, state == "done")


@pytest.mark.parametrize("without", ["authorize", "ask"])
async def test_nothing_is_sent_without_a_permit(portal: Opened, peer: Peer, without: str) -> None:
    before, calls = len(peer.calls), await portal.calls()
    calls = replace(calls, steps=tuple(step for step in WAY if step.__name__ != without))
    function = "up.asks" if without == "ask" else "up.write"
    calls.open(1, function)
    with pytest.raises(AssertionError, match="not authorized"):
        await calls(ToolCall(1, function, {}))
    with pytest.raises(AssertionError, match="not authorized"):
        await replace(calls, steps=(send,))(ToolCall(1, function, {}))
    assert len(peer.calls) == before


@pytest.mark.parametrize("revoked", [{}, {"tools": {"ask": ["portal.fetch"]}}])
async def test_a_fetch_that_is_revoked_while_it_waits_is_not_sent(tmp_path: Path, revoked: Any) -> None:
    received: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1))
        writer.close()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        network: Json = {"network": {"private": [host]}}
        async with opened(tmp_path, {}, capabilities=network) as portal:
            calls = await portal.calls()
            fetcher = Fetchers(lambda port: False).of_run(portal.portal.manifest)

            class Revoked(Journal):
                async def intend(self, seq: int, function: str) -> CallError | None:
                    granted = {**network, **revoked} if revoked else {}
                    await reload(portal, tmp_path, lambda data: data.update(capabilities=granted))
                    return None

            broker = replace(calls.run.broker, fetcher=fetcher)
            calls = replace(calls, run=replace(calls.run, broker=broker, journal=Revoked()))
            calls.open(1, "portal.fetch")
            outcome = await calls(ToolCall(1, "portal.fetch", {"url": f"http://{host}/", "method": "POST"}))
    assert outcome.error is not None
    assert outcome.error.code == ("approval_required" if revoked else "not_granted")
    assert calls.run.ledger[1].state == "refused" and not any(received)


async def test_calls_do_not_wait_while_nobody_knows_whether_another_one_was_decided(portal: Opened) -> None:
    calls = await portal.calls()
    calls = replace(calls, run=replace(calls.run, journal=Unread(), waits=Person(True)))
    calls.open(1, "up.asks")
    calls.open(2, "up.read")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calls, ToolCall(1, "up.asks", {}))
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(DEADLINE_SECONDS):
            assert (await calls(ToolCall(2, "up.read", {}))).error is None
        tasks.cancel_scope.cancel()
