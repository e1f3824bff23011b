"""Whatever ends a run, its ledger says of each call whether it was not started, done, failed, or may have acted."""

import os
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from manifests.json_value import Json
from tests.portal.peers import (
    DEADLINE_SECONDS,
    Opened,
    Peer,
    never,
    opened,
    raw,
    raw_tools,
    states,
    tool,
)
from tests.upstreams.peers import closed_port

pytestmark = pytest.mark.anyio


async def test_an_exception_ends_the_calls_in_flight_and_tells_they_may_have_acted(tmp_path: Path) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    async with opened(tmp_path, {"store": peer}) as portal:
        code = (
            "import asyncio\n"
            "call = asyncio.create_task(store.hang())\n"
            "await asyncio.sleep(0)\n"
            "await store.echo()\n"
            "raise ValueError('enough')"
        )
        answer = await portal.run(code)
        await peer.until(lambda: peer.cancelled == ["hang"])
    assert answer["error"]["code"] == "script_error"
    assert states(answer) == [("store.hang", "unknown"), ("store.echo", "done")]
    assert "1 done, 1 unknown" in answer["error"]["hint"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_request_that_its_client_cancels_ends_its_run_and_its_calls(
    tmp_path: Path, mode: str
) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    async with opened(tmp_path, {"store": peer}, mode=mode) as portal, anyio.create_task_group() as tasks:
        tasks.start_soon(portal.run, "await store.hang()\nawait store.echo(after=True)")
        await peer.until(lambda: bool(peer.calls))
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await peer.until(lambda: peer.cancelled == ["hang"])
            assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
    assert peer.calls == [("hang", {}), ("echo", {"a": 1})]


async def test_an_upstream_that_dies_during_a_call_leaves_it_unknown_and_comes_back(tmp_path: Path) -> None:
    upstream = raw(tools=raw_tools("crash", "echo"))
    async with opened(tmp_path, {"raw": upstream}) as portal:
        answer = await portal.run("await raw.echo()\nawait raw.crash()")
        assert answer["error"]["code"] == "upstream_lost"
        assert states(answer) == [("raw.echo", "done"), ("raw.crash", "unknown")]
        assert await again(portal, "await raw.echo(a=1)") == {"a": 1}


async def again(portal: Opened, code: str) -> Json:
    """The value of a script, as soon as the upstream it needs is back."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while (answer := await portal.run(code))["status"] != "ok":
            assert answer["error"]["code"] == "upstream_unavailable", answer
            assert all(row["state"] == "not_started" for row in answer["calls"])
    return answer["result"]


async def test_a_script_waits_for_an_upstream_that_starts_late(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    answers = []
    async with opened(tmp_path, {"slow": raw(waits_for=str(go)), "quick": Peer()}) as portal:
        assert await portal.result_of("await quick.echo(a=1)") == {"a": 1}

        async def run() -> None:
            answers.append(await portal.result_of("await slow.echo(a=2)"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.to_thread.run_sync(go.write_text, "go")
    assert answers == [{"a": 2}]


async def test_a_dead_upstream_is_told_before_anything_runs(tmp_path: Path) -> None:
    dead = {"url": f"http://127.0.0.1:{closed_port()}/mcp"}
    quick = Peer()
    async with opened(tmp_path, {"dead": dead, "quick": quick}) as portal:
        answer = await portal.run("await quick.echo()\nawait dead.create(a=1)")
        assert await portal.result_of("await quick.echo(a=1)") == {"a": 1}
    assert (answer["status"], answer["error"]["code"]) == ("refused", "upstream_unavailable")
    assert "dead" in answer["error"]["message"]
    assert quick.calls == [("echo", {"a": 1})]


async def test_a_call_that_takes_too_long_is_unknown_and_can_be_caught(tmp_path: Path) -> None:
    upstream = {**raw(tools=raw_tools("hang", "echo")), "call_seconds": 0.3}
    async with opened(tmp_path, {"raw": upstream}) as portal:
        answer = await portal.run("try:\n    await raw.hang()\nexcept ToolError as e:\n    c = e.code\nc")
    assert answer["result"] == "upstream_timeout"
    assert states(answer) == [("raw.hang", "unknown")]


async def test_an_error_of_the_protocol_is_a_failed_call_with_its_text(tmp_path: Path) -> None:
    async with opened(tmp_path, {"raw": raw(tools=raw_tools("error"))}) as portal:
        answer = await portal.run("await raw.error(code=-32000, message='out of tea')")
    assert "out of tea" in answer["error"]["message"]
    assert states(answer) == [("raw.error", "failed")]


async def test_many_calls_are_summarised_and_all_counted(tmp_path: Path) -> None:
    async with opened(tmp_path, {"store": Peer()}) as portal:
        code = "import asyncio\nlen(await asyncio.gather(*[store.echo(i=i) for i in range(150)]))"
        answer = await portal.run(code)
    assert answer["result"] == 150
    assert len(answer["calls"]) <= 100
    assert sum(row.get("count", 1) for row in answer["calls"]) == 150


async def test_the_check_can_warn_or_be_off_and_the_broker_still_refuses(tmp_path: Path) -> None:
    peer = Peer(tool("echo"))
    for mode in ("warn", "off"):
        async with opened(tmp_path, {"store": peer}, server={"check": mode}) as portal:
            answer = await portal.run("print('ran')\nawait store.ecko()")
            assert (answer["status"], answer["stdout"]) == ("error", "ran\n")
            assert bool(answer["notices"]) is (mode == "warn")
    assert peer.calls == []


async def test_what_an_upstream_is_told_in_confidence_is_nowhere(tmp_path: Path) -> None:
    secret = "s3cret-of-the-tests"

    leaky = {**raw(stderr=f"starting with {secret}", exits_with=3), "env": {"TOKEN": "${TOKEN}"}}
    refused = {
        "url": f"http://127.0.0.1:{closed_port()}/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }
    leaky["args"] = [argument.replace(secret, "${TOKEN}") for argument in leaky["args"]]
    environ = {"TOKEN": secret}
    upstreams: dict[str, Peer | dict[str, Json]] = {"leaky": leaky, "refused": refused}
    with capture_logs() as logged:
        async with opened(tmp_path, upstreams, environ=environ) as portal:
            told = [
                str(await portal.search()),
                await portal.search_text(),
                str(await portal.run("await leaky.echo()")),
                str(await portal.run("await refused.echo()")),
                repr(portal.portal.manifest),
            ]
    told.append(str(logged))
    assert "upstream_changed" in told[-1]
    assert not [text for text in told if secret in text]
