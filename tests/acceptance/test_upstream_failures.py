"""A portal among upstreams that are dead, slow or silent: the others work, and every answer says what happened."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import stdio_model, write_manifest

pytestmark = pytest.mark.anyio

LISTING_SERVER = str(Path(__file__).parent / "peers/listing_server.py")
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


FAULTS = [
    ("fail", "tool_error", "failed", "refused"),
    ("crash", "upstream_lost", "unknown", "exited with status 7"),
    ("write_no_json", "upstream_answer", "unknown", "cut off"),
    ("write_too_much", "upstream_answer", "unknown", "message_bytes"),
    ("flood", "upstream_answer", "unknown", "unsolicited messages"),
]
"""A tool that misbehaves, the error's code, the state in the ledger, and part of the message."""


@pytest.fixture(scope="module")
async def faulty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Model]:
    folder = tmp_path_factory.mktemp("faults")
    upstreams: dict[str, dict[str, Json]] = {"waiting": {"command": sys.executable, "args": [WAITING_SERVER]}}
    for fault, *_ in FAULTS:
        (folder / f"{fault}.json").write_text(json.dumps([{"name": fault}, {"name": "fine"}]))
        listing = [LISTING_SERVER, str(folder / f"{fault}.json")]
        upstreams[f"up_{fault}"] = {"command": sys.executable, "args": listing, "message_bytes": 100_000}
    async with stdio_model(write_manifest(folder, upstreams)) as model:
        yield model


@pytest.mark.parametrize(("fault", "code", "state", "told"), FAULTS, ids=[row[0] for row in FAULTS])
async def test_fault_costs_its_own_call_alone(
    faulty: Model, fault: str, code: str, state: str, told: str
) -> None:
    answer = await faulty.run(
        f"""
try:
    await up_{fault}.{fault}()
except ToolError as error:
    caught = [error.code, str(error)]
caught, await waiting.double(number=4)
"""
    )
    assert answer["result"][0][0] == code, answer
    assert told in answer["result"][0][1]
    assert answer["result"][1] == 8
    assert [call["state"] for call in answer["calls"]] == [state, "done"]


@pytest.mark.parametrize("fault", ["write_no_json", "write_too_much", "flood"])
async def test_upstream_that_was_cut_off_is_named_with_the_reason(faulty: Model, fault: str) -> None:
    """Its circuit is open for some seconds. Whether the call is sent then or not, the reason is told."""
    error = (await faulty.run(f"await up_{fault}.{fault}()"))["error"]
    assert error["code"] in ("upstream_answer", "circuit_open"), error
    assert "it sent" in error["message"]
    notices = (await faulty.search())["notices"]
    assert any(f"up_{fault}" in notice and "it sent" in notice for notice in notices), notices
