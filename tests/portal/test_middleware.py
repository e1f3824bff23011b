"""Middleware changes arguments and outcomes of calls, and neither widens what is granted nor falsifies the ledger."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from mcp_types import CallToolResult, TextContent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from manifests.json_value import Json
from portal.base.caller import Caller
from portal.base.errors import PortalError
from portal.calls.pipeline import WAY, Pipeline
from portal.middleware import BrokerCall, CallError, Middleware, Next, Outcome, load_middleware
from portal.records.audit.audit import NO_AUDIT
from sandbox_runtime.call_port import ToolCall
from tests.portal.peers import DEADLINE_SECONDS, Barrier, Opened, Peer, opened, schema, states, text, tool
from tests.upstreams.peers import http_peer

RULES: Json = {
    "tools": {
        "deny": ["store.drop_all"],
        "allow": ["*", {"tool": "store.read", "where": {"path": {"prefix": "public/"}}}],
    }
}


async def both(arguments: dict[str, Json]) -> CallToolResult:
    told, data = [TextContent(text="mail ann@example.org")], {"n": 3, "to": "bob@example.org"}
    return CallToolResult(content=told, structured_content=data, is_error="fails" in arguments)


async def broken(arguments: dict[str, Json]) -> Any:
    return text("no", is_error=True)


@pytest.fixture(scope="module")
def peer() -> Peer:
    return Peer(
        tool("echo"),
        tool("read", schema("path", path={"type": "string"})),
        tool("drop_all", annotations={"destructiveHint": True}),
        tool("wipe", annotations={"destructiveHint": True}),
        tool("broken"),
        tool("both"),
        tool("together"),
        broken=broken,
        both=both,
        together=Barrier(2),
    )


@pytest.fixture(scope="module")
async def portal(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    async with opened(tmp_path_factory.mktemp("middleware"), {"store": peer}, capabilities=RULES) as portal:
        await portal.search()  # which waits for the upstreams
        yield portal


async def called(calls: Pipeline, function: str, **arguments: Json) -> Outcome:
    seq = calls.run.ledger.calls + 1
    calls.open(seq, function)
    return await calls(ToolCall(seq, function, arguments))


def code_of(outcome: Outcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


async def passing(call: BrokerCall, next: Next) -> Outcome:
    return await next(call)


async def test_middleware_sees_what_is_called_by_whom(portal: Opened, peer: Peer) -> None:
    seen: list[BrokerCall] = []

    async def watching(call: BrokerCall, next: Next) -> Outcome:
        seen.append(call)
        return await next(call)

    audit = NO_AUDIT.run("run_1", Caller("x", "x", tenant="acme"), "reader")
    calls = await portal.calls(watching, audit=audit)
    calls.run.ledger.run_id = "run_1"
    assert (await called(calls, "store.echo", a=1)).value == {"a": 1}
    before = len(peer.calls)
    refused = ("store.wipe", "store.drop_all")
    assert [code_of(await called(calls, function)) for function in refused] == ["not_granted"] * 2
    await called(calls, "portal.resources")
    assert len(peer.calls) == before, "what is refused is not made by middleware that passes it on"
    first, second, *others = seen
    assert first == BrokerCall(
        "run_1", 1, "store.echo", "store", "echo", {}, {"a": 1}, profile="reader", tenant="acme"
    )
    assert (second.tool, second.annotations["destructiveHint"]) == ("wipe", True)
    assert [(each.seq, each.function, each.upstream, each.tool) for each in others] == [
        (3, "store.drop_all", None, None),
        (4, "portal.resources", None, None),
    ]


async def test_nothing_passes_beside_what_middleware_saw(portal: Opened) -> None:
    def hiding(value: Json) -> Middleware:
        async def hide(call: BrokerCall, next: Next) -> Outcome:
            outcome = await next(call)
            return outcome if outcome.error else replace(outcome, value=value or outcome.value)

        return hide

    for middleware in (hiding({"n": 3}), passing):
        calls = await portal.calls(middleware)
        outcome = await called(calls, "store.both")
        assert (outcome.value["n"], outcome.content) == (3, [{"type": "text", "text": None}])
        failed = await called(calls, "store.both", fails=True)
        assert (code_of(failed), failed.data, failed.content) == ("tool_error", None, None)
    plain = await called(await portal.calls(), "store.both")
    assert (plain.beside, plain.content) == ([0], [{"type": "text", "text": "mail ann@example.org"}])


async def test_the_first_middleware_is_outermost(portal: Opened, peer: Peer) -> None:
    def adding(letter: str) -> Middleware:
        async def add(call: BrokerCall, next: Next) -> Outcome:
            outcome = await next(replace(call, arguments={"path": call.arguments["path"] + letter}))
            return replace(outcome, value={"path": outcome.value["path"] + letter.upper()})

        return add

    calls = await portal.calls(adding("a"), adding("b"))
    outcome = await called(calls, "store.read", path="public/")
    assert peer.calls[-1] == ("read", {"path": "public/ab"})
    assert outcome.value == {"path": "public/abBA"}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"arguments": {"path": "public/x"}}, None),
        ({"arguments": {"path": "private/x"}}, "not_granted"),
        ({"arguments": {"path": {"x": 1}}}, "invalid_arguments"),
        ({"arguments": {"path": "public/x", "more": 1}}, "invalid_arguments"),
        ({"arguments": {"path": object()}}, "middleware_error"),
        ({"arguments": ["public/x"]}, "middleware_error"),
        ({"function": "store.drop_all"}, "middleware_error"),
        ({"tool": "drop_all"}, "middleware_error"),
        ({"seq": 7}, "middleware_error"),
    ],
)
async def test_only_arguments_can_be_replaced_and_are_authorized_and_validated(
    portal: Opened, peer: Peer, changed: dict[str, Any], code: str | None
) -> None:
    async def rewriting(call: BrokerCall, next: Next) -> Outcome:
        return await next(replace(call, **changed))

    before = len(peer.calls)
    calls = await portal.calls(rewriting)
    assert code_of(await called(calls, "store.read", path="public/y")) == code
    assert len(peer.calls) - before == (1 if code is None else 0)
    assert [row["state"] for row in calls.run.ledger.rows()] == ["done" if code is None else "refused"]


async def test_arguments_that_change_after_they_were_authorized_are_not_sent(
    portal: Opened, peer: Peer
) -> None:
    async def tricky(call: BrokerCall, next: Next) -> Outcome:
        inner = {"deep": {"x": 1}}
        sending = asyncio.ensure_future(next(replace(call, arguments=inner)))
        await asyncio.sleep(0)  # it runs until it waits for the upstream
        inner["deep"]["x"] = 2
        return await sending

    assert (await called(await portal.calls(tricky), "store.echo")).value == {"deep": {"x": 1}}
    assert peer.calls[-1] == ("echo", {"deep": {"x": 1}})


async def answering(call: BrokerCall, next: Next) -> Outcome:
    return Outcome(value={"from": "middleware"})


async def vetoing(call: BrokerCall, next: Next) -> Outcome:
    return Outcome(error=CallError("frozen", "no changes today", "Try again tomorrow."))


@pytest.mark.parametrize(
    ("middleware", "code", "state", "answered_by"),
    [(answering, None, "not_started", "middleware"), (vetoing, "frozen", "refused", None)],
)
async def test_a_value_without_a_call_is_no_call_and_a_veto_a_refusal(
    portal: Opened, peer: Peer, middleware: Middleware, code: str | None, state: str, answered_by: str | None
) -> None:
    before = len(peer.calls)
    calls = await portal.calls(middleware)
    assert code_of(await called(calls, "store.echo")) == code
    (row,) = calls.run.ledger.rows()
    assert (row["state"], row.get("answered_by"), row.get("error", {}).get("code")) == (
        state,
        answered_by,
        code,
    )
    assert len(peer.calls) == before


async def raising(call: BrokerCall, next: Next) -> Outcome:
    raise ValueError("a secret")


async def sending_and_raising(call: BrokerCall, next: Next) -> Outcome:
    await next(call)
    raise ValueError("a secret")


async def sending_twice(call: BrokerCall, next: Next) -> Outcome:
    await next(call)
    return await next(call)


async def answering_nothing(call: BrokerCall, next: Next) -> Any:
    await next(call)


async def answering_no_json(call: BrokerCall, next: Next) -> Outcome:
    return replace(await next(call), value={"x": object()})


async def failing_with_a_string(call: BrokerCall, next: Next) -> Outcome:
    return replace(await next(call), error="no")


async def test_ledger_tells_no_more_than_the_script_is_told(portal: Opened, peer: Peer) -> None:
    async def masking(call: BrokerCall, next: Next) -> Outcome:
        outcome = await next(replace(call, arguments={"key": "a secret"}))
        masked = outcome.error and replace(outcome.error, message="masked")
        return replace(outcome, error=None if "answers" in call.arguments else masked)

    calls = await portal.calls(masking)
    await called(calls, "store.broken", a=1)
    await called(calls, "store.broken", answers=1)
    told = [
        (row["error"]["code"], row["error"]["message"], row["arguments"]) for row in calls.run.ledger.rows()
    ]
    assert told == [
        ("tool_error", "masked", "a=1"),
        ("tool_error", "middleware answered instead", "answers=1"),
    ]


async def test_error_is_not_told_if_its_middleware_is_cancelled(portal: Opened, peer: Peer) -> None:
    has_failed = anyio.Event()

    async def hanging(call: BrokerCall, next: Next) -> Outcome:
        outcome = await next(call)
        has_failed.set()
        await anyio.sleep_forever()
        return outcome

    calls = await portal.calls(hanging)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(called, calls, "store.broken")
        await has_failed.wait()
        tasks.cancel_scope.cancel()
    (row,) = calls.run.ledger.rows()
    assert (row["state"], row["error"]["message"]) == ("failed", "the middleware did not answer")


@pytest.mark.parametrize(
    ("middleware", "function", "state"),
    [
        (raising, "store.echo", "refused"),
        (sending_and_raising, "store.echo", "done"),
        (sending_and_raising, "store.broken", "failed"),
        (sending_and_raising, "store.drop_all", "refused"),
        (sending_twice, "store.echo", "done"),
        (answering_nothing, "store.echo", "done"),
        (answering_no_json, "store.echo", "done"),
        (failing_with_a_string, "store.echo", "done"),
    ],
)
@pytest.mark.parametrize("around", [(), (passing,)])
async def test_faulty_middleware_fails_the_call_without_internals(
    portal: Opened,
    peer: Peer,
    middleware: Middleware,
    function: str,
    state: str,
    around: tuple[Middleware, ...],
) -> None:
    before = len(peer.calls)
    calls = await portal.calls(*around, middleware)
    with structlog.testing.capture_logs() as logs:
        outcome = await called(calls, function)
    assert outcome.error is not None and outcome.error.code == "middleware_error"
    assert "secret" not in f"{outcome.error.message} {outcome.error.hint}"
    assert "middleware_failed" in [line["event"] for line in logs]
    assert (calls.run.ledger[1].state, len(peer.calls) - before) == (state, 0 if state == "refused" else 1)
    # The upstream's answer is kept.
    told = {"failed": "tool_error", "refused": "not_granted" if "drop" in function else "middleware_error"}
    assert calls.run.ledger.rows()[0]["error"]["code"] == told.get(state, "middleware_error")


async def test_next_does_nothing_after_its_middleware_has_returned(portal: Opened, peer: Peer) -> None:
    kept: list[tuple[BrokerCall, Next]] = []

    async def keeping(call: BrokerCall, next: Next) -> Outcome:
        kept.append((call, next))
        return Outcome(value=1)

    before = len(peer.calls)
    await called(await portal.calls(keeping), "store.echo")
    ((call, next),) = kept
    with pytest.raises(Exception, match="returned"):
        await next(call)
    assert len(peer.calls) == before


async def test_a_failure_of_the_portal_is_not_hidden_by_middleware(portal: Opened) -> None:
    async def hiding(call: BrokerCall, next: Next) -> Outcome:
        try:
            return await next(call)
        except Exception:  # noqa: BLE001  # as an operator may write it
            return Outcome(value="all is well")

    async def fails(*arguments: object) -> Outcome:
        raise RuntimeError("of the portal")

    calls = replace(await portal.calls(passing, hiding), steps=(*WAY[:-1], fails))
    with pytest.raises(RuntimeError, match="of the portal"):
        await called(calls, "store.echo")


async def test_middleware_waits_for_calls_at_once(portal: Opened) -> None:
    calls = await portal.calls(passing)
    outcomes = await asyncio.gather(*(called(calls, "store.together") for _ in range(2)))
    assert [code_of(each) for each in outcomes] == [None, None]


MODULE = """\
from portal.middleware import BrokerCall, Next, Outcome

name = "not a function"

async def mask(call: BrokerCall, next: Next) -> Outcome:
    return await next(call)

async def large(call: BrokerCall, next: Next) -> Outcome:
    return Outcome(value="x" * 2_000)

class Veto:
    async def __call__(self, call: BrokerCall, next: Next) -> Outcome:
        return await next(call)

veto = Veto()

def plain(call, next):
    return next(call)
"""


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "own_module.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("1 / 0")
    (tmp_path / "own_lacking.py").write_text("import nothing_of_the_kind")
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


def sources(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*.py")}


def test_a_file_beside_the_manifest_is_found_and_the_import_path_stays(beside: Path) -> None:
    before = [*sys.path]
    assert len(load_middleware(["own_module:mask", "own_module:veto"], beside, sources(beside))) == 2
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("own_nothing:mask", "there is no module own_nothing"),
        ("own_module.inner:mask", "there is no module own_module.inner"),
        ("own_module:nothing", "has no nothing"),
        ("own_module:name", "is not an async function"),
        ("own_module:plain", "is not an async function"),
        ("own_module:Veto", "is not an async function"),
        ("own_broken:mask", "raised ZeroDivisionError"),
        ("own_lacking:mask", "raised ModuleNotFoundError"),
    ],
)
async def test_portal_with_unusable_middleware_does_not_start_and_says_why(
    beside: Path, name: str, why: str
) -> None:
    with pytest.raises(PortalError) as raised:
        async with opened(beside, middleware=[name]):
            pass
    assert repr(name) in str(raised.value) and why in str(raised.value)


async def test_a_value_of_middleware_has_the_limit_of_an_outcome(beside: Path) -> None:
    limits: Json = {"limits": {"outcome_bytes": 1_024}}
    own = {"middleware": ["own_module:large"], "capabilities": limits}
    async with opened(beside, {"store": Peer(tool("echo"))}, **own) as portal:
        answer = await portal.run("await store.echo()")
    assert answer["error"]["code"] == "outcome_limit"
    assert states(answer) == [("store.echo", "refused")]


PAGE = (Path(__file__).parents[2] / "docs" / "middleware.md").read_text("utf-8")


@pytest.fixture
def example(beside: Path) -> Callable[[str], str]:
    """Writes a module of the page beside the manifest, under its own name, and gives the name for the manifest."""

    def write(name: str) -> str:
        (source,) = re.findall(rf"^```python {name}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        (beside / f"{name}.py").write_text(source)
        (function,) = re.findall(r"^async def (\w+)\(call: BrokerCall, next: Next\)", source, re.MULTILINE)
        return f"{name}:{function}"

    return write


async def test_the_example_redacts(tmp_path: Path, example: Callable[[str], str]) -> None:
    upstreams: dict[str, Peer | dict[str, Json]] = {"crm": Peer(tool("echo"))}
    async with opened(tmp_path, upstreams, middleware=[example("redact")]) as portal:
        found = await portal.result_of("await crm.echo(to=['a.b@example.org'], n=1, text='from x@y.de')")
    assert found == {"to": ["***"], "n": 1, "text": "from ***"}


async def test_the_example_answers_from_a_file(tmp_path: Path, example: Callable[[str], str]) -> None:
    (tmp_path / "answers.json").write_text('{"crm.echo": {"id": 1}}')
    peer = Peer(tool("echo"), tool("delete"))
    async with opened(tmp_path, {"crm": peer}, middleware=[example("fixture")]) as portal:
        answer = await portal.run("await crm.echo(n=7)")
        error = await portal.error_of("await crm.delete()")
    assert (answer["result"], states(answer)) == ({"id": 1}, [("crm.echo", "not_started")])
    assert (error["code"], peer.calls) == ("no_fixture", [])


async def test_the_example_tells_a_chat_and_does_not_wait_for_it(
    tmp_path: Path, example: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Json] = []
    has_been_told, may_answer = anyio.Event(), anyio.Event()

    async def chat(request: Request) -> Response:
        told.append(await request.json())
        has_been_told.set()
        await may_answer.wait()
        return Response()

    peer = Peer(tool("echo"), tool("drop", annotations={"destructiveHint": True}))
    grants: Json = {"tools": {"allow": ["*", "store.drop"]}}
    async with http_peer(Starlette(routes=[Route("/hook", chat, methods=["POST"])])) as served:
        monkeypatch.setenv("CHAT_WEBHOOK", f"http://127.0.0.1:{served.port}/hook")
        own: Json = {"middleware": [example("chat")], "capabilities": grants}
        async with opened(tmp_path, {"store": peer}, **own) as portal:
            await portal.result_of("await store.echo()\nawait store.drop()")
            with anyio.fail_after(DEADLINE_SECONDS):
                await has_been_told.wait()
                may_answer.set()
    (message,) = told
    assert re.fullmatch(r"store\.drop was called in run_\w+: done", message["text"])
