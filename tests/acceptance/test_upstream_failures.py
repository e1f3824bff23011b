"""A portal among upstreams that are dead, slow or silent: the others work, and every answer says what happened."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Model
from tests.acceptance.portal_process import stdio_model, write_manifest

pytestmark = pytest.mark.anyio

WAITING_SERVER = str(Path(__file__).parent / "peers/waiting_server.py")


@pytest.fixture(scope="module")
async def model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Model]:
    upstreams = {
        "time": real_servers.time(),
        "waiting": {"command": sys.executable, "args": [WAITING_SERVER]},
        "missing": {"command": "no-such-program-anywhere"},
        "ending": {"command": sys.executable, "args": ["-c", "raise SystemExit('out of tea')"]},
        "unreachable": {"url": "http://127.0.0.1:9/mcp"},
        "impatient": {"command": sys.executable, "args": [WAITING_SERVER], "call_seconds": 0.5},
    }
    manifest = write_manifest(
        tmp_path_factory.mktemp("upstream_failures"), upstreams, server={"start_seconds": 20}
    )
    async with stdio_model(manifest) as model:
        yield model


async def test_dead_upstreams_are_named_while_the_others_are_ready(model: Model) -> None:
    answer = await model.search()
    states = {row["upstream"]: row["state"] for row in answer["namespaces"]}
    assert {name for name, state in states.items() if state == "ready"} == {"time", "waiting", "impatient"}
    for name in ("missing", "ending", "unreachable"):
        assert any(name in notice for notice in answer["notices"]), answer["notices"]


async def test_reason_of_a_dead_upstream_is_told(model: Model) -> None:
    notices = " ".join((await model.search())["notices"])
    assert "no-such-program-anywhere" in notices
    assert "out of tea" in notices


@pytest.mark.parametrize("name", ["missing", "ending", "unreachable"])
async def test_script_that_calls_a_dead_upstream_is_told_its_name(model: Model, name: str) -> None:
    answer = await model.run(f"await {name}.anything()")
    assert answer["status"] in ("error", "refused")
    assert name in answer["error"]["message"] + answer["error"]["hint"]
    assert all(call["state"] == "not_started" for call in answer["calls"])


async def test_script_on_a_living_upstream_works_beside_the_dead(model: Model) -> None:
    assert await model.result_of("(await time_.get_current_time(timezone='UTC'))['timezone']") == "UTC"


async def test_timeout_keeps_the_ledger(model: Model) -> None:
    answer = await model.run(
        """
await waiting.note(text="before")
await waiting.wait_forever()
await waiting.note(text="after")
""",
        timeout_seconds=2,
    )
    assert answer["status"] == "error"
    assert answer["error"]["code"] == "wall_limit"
    assert [(call["function"], call["state"]) for call in answer["calls"]] == [
        ("waiting.note", "done"),
        ("waiting.wait_forever", "unknown"),
    ]


async def test_call_beyond_its_upstreams_deadline_is_unknown(model: Model) -> None:
    answer = await model.run(
        """
try:
    await impatient.wait_forever()
except ToolError as error:
    told = error.code
told
"""
    )
    assert answer["result"] == "upstream_timeout"
    assert [call["state"] for call in answer["calls"]] == ["unknown"]


async def test_portal_answers_after_a_timeout(model: Model) -> None:
    assert await model.result_of("await waiting.note(text='still here')") == "still here"
