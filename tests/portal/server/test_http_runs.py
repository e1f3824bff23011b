"""Runs over HTTP: access, and notifications while they run."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from httpx2 import AsyncClient
from structlog.testing import capture_logs

from manifests.json_value import Json
from portal.app.composition import open_portal
from portal.records.store.records import StoreError
from portal.server import http_runs as http
from tests.portal.app.test_http_app import served
from tests.portal.kept_runs import KeptRuns, kept_runs
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened
from tests.upstreams.peers import http_peer


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[KeptRuns]:
    async with kept_runs(tmp_path) as kept:
        yield kept


@pytest.fixture
async def client(kept: KeptRuns) -> AsyncIterator[AsyncClient]:
    async with kept.client() as client:
        yield client


def error_of(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def events_in(text: str) -> list[tuple[int, str]]:
    """The ids and kinds of server-sent events."""
    blocks = [
        dict(line.split(": ", 1) for line in block.split("\n")) for block in text.split("\n\n") if block
    ]
    return [(int(block["id"]), block["event"]) for block in blocks if "event" in block]


async def test_run_is_started_in_the_background_and_found_where_the_answer_says(client: AsyncClient) -> None:
    started = await client.post("/runs", json={"code": "hang", "timeout_seconds": 5})
    assert started.status_code == 202
    assert started.json()["status"] == "running"
    found = (await client.get(started.headers["location"])).json()
    told = {"run_id": started.json()["run_id"], "state": "running", "code": "hang"}
    assert told.items() <= found.items()


async def test_caller_that_waits_gets_the_answer_of_a_run_that_ends_in_time(client: AsyncClient) -> None:
    ended = await client.post("/runs?wait=60", json={"code": "ok"})
    assert (ended.status_code, ended.json()["status"]) == (200, "ok")
    late = await client.post("/runs?wait=0.01", json={"code": "hang"})
    assert (late.status_code, late.json()["status"]) == (202, "running")


async def test_caller_that_waits_when_the_portal_ends_gets_the_run(
    kept: KeptRuns, client: AsyncClient
) -> None:
    request = asyncio.create_task(client.post("/runs?wait=60", json={"code": "hang"}))
    with anyio.fail_after(DEADLINE_SECONDS):
        while not (runs := (await client.get("/runs")).json()["runs"]):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        request.cancel()  # as the server does once `drain_seconds` are over
        response = await request
    assert (response.status_code, response.json()["run_id"]) == (202, runs[0]["run_id"])


async def test_runs_are_listed_newest_first_and_those_that_go_on_alone(client: AsyncClient) -> None:
    await client.post("/runs?wait=60", json={"code": "ok"})
    await client.post("/runs", json={"code": "hang"})
    assert [each["script"] for each in (await client.get("/runs")).json()["runs"]] == ["hang", "ok"]
    assert [each["script"] for each in (await client.get("/runs?open=true")).json()["runs"]] == ["hang"]
    assert len((await client.get("/runs?limit=1")).json()["runs"]) == 1


async def test_nonsense_starts_nothing(client: AsyncClient) -> None:
    told = {"Content-Type": "application/json"}
    for body in (b"", b"{", b"null", b'{"code": 1}', b'{"code": "ok", "more": 1}', b"\xff", b"[" * 1_000_000):
        assert error_of(await client.post("/runs", content=body, headers=told))[0] == 400, body[:30]
    off = await client.post("/runs", json={"code": "ok", "kernel": "javascript"})
    assert error_of(off) == (400, "kernel_off")
    for query in ("limit=0", "limit=1001", "limit=x", "open=maybe", "wait=61", "other=1"):
        assert error_of(await client.get(f"/runs?{query}")) == (400, "invalid_arguments"), query
    response = await client.post("/runs", json={"code": "x" * http.MAX_BODY_BYTES})
    assert error_of(response) == (413, "body_too_large")
    assert (await client.get("/runs")).json() == {"runs": []}


async def test_body_that_is_no_object_is_told_the_keys(client: AsyncClient) -> None:
    for path, keys in (
        ("/runs", "{code, timeout_seconds?, kernel?}"),
        ("/runs/run_1/answers/1", "{decision, reason?, arguments?}"),
        ("/runs/run_1/fork", "{at, code?}"),
    ):
        for response in (await client.post(path), await client.post(path, json=[7])):
            assert error_of(response) == (400, "invalid_arguments")
            assert f"an object {keys}" in response.json()["error"]["message"]


ROUTES = [
    ("GET", "/runs/{run}", None),
    ("GET", "/runs/{run}/events", None),
    ("POST", "/runs/{run}/cancel", None),
    ("POST", "/runs/{run}/fork", {"at": 1}),
    ("POST", "/runs/{run}/answers/1", {"decision": "approve"}),
]


async def test_first_decision_counts_and_the_second_is_told_who_was_first(
    kept: KeptRuns, client: AsyncClient
) -> None:
    run = await kept.start("ask")
    await kept.until(run, "waiting")
    asked = (await client.get(f"/runs/{run}")).json()["waiting"]
    assert [(each["seq"], each["asked"]["arguments"]) for each in asked] == [(1, {"pull": 7})]
    path = f"/runs/{run}/answers/1"
    answers: list[httpx2.Response] = []

    async def decide(decision: str) -> None:
        answers.append(await client.post(path, json={"decision": decision, "arguments": {"pull": 8}}))

    async with anyio.create_task_group() as tasks:
        for decision in ("approve", "deny"):
            tasks.start_soon(decide, decision)
    first, second = sorted(answers, key=lambda each: each.status_code)
    assert (first.status_code, error_of(second)) == (200, (409, "already_decided"))
    assert "by http" in second.json()["error"]["message"]
    await kept.until(run, "ok")
    ended = (await client.get(f"/runs/{run}")).json()
    assert ended["answer"]["result"]["arguments"] == {"pull": 8}
    assert [each["decision"]["by"] for each in ended["decisions"]] == ["http"]
    assert error_of(await client.post(path, json={"decision": "deny"})) == (409, "run_ended")


async def test_decision_that_fits_no_call_changes_nothing(kept: KeptRuns, client: AsyncClient) -> None:
    run = await kept.start("ask")
    await kept.until(run, "waiting")
    for path, body, error in (
        ("answers/2", {"decision": "deny"}, (404, "unknown_call")),
        (f"answers/{10**30}", {"decision": "deny"}, (404, "unknown_call")),
        ("answers/1", {"decision": "maybe"}, (400, "invalid_arguments")),
        ("answers/1", {"decision": "approve_later"}, (400, "may_not_stand")),
        ("answers/1", {"decision": "approve", "by": "me"}, (400, "invalid_arguments")),
        ("fork", {"at": "x"}, (400, "invalid_arguments")),
    ):
        assert error_of(await client.post(f"/runs/{run}/{path}", json=body)) == error
    assert len((await client.get(f"/runs/{run}")).json()["waiting"]) == 1


async def test_run_is_cancelled_once(kept: KeptRuns, client: AsyncClient) -> None:
    run = await kept.start("ask")
    await kept.until(run, "waiting")
    assert (await client.post(f"/runs/{run}/cancel")).json()["state"] == "cancelled"
    assert error_of(await client.post(f"/runs/{run}/cancel")) == (409, "run_ended")


async def test_run_that_is_too_old_ends_without_its_call(kept: KeptRuns, client: AsyncClient) -> None:
    run = await kept.start("ask")
    await kept.until(run, "waiting")
    await kept.store.write(lambda file: file.database.execute("UPDATE runs SET expires = 1"))
    kept.runs.changes.wake()
    await kept.until(run, "expired")
    assert (await client.get(f"/runs/{run}")).json()["answer"]["error"]["code"] == "expired"


async def test_events_of_a_run_come_in_pages_end_with_it_and_go_on_after_each_id(
    kept: KeptRuns, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_PAGE", 2)
    run = await kept.start("ask")
    await kept.until(run, "waiting")
    await client.post(f"/runs/{run}/answers/1", json={"decision": "approve"})
    await kept.until(run, "ok")
    stream = await client.get(f"/runs/{run}/events")
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = events_in(stream.text)
    kinds = [kind for _, kind in events]
    assert kinds == ["began", "resumed", "waiting", "waiting", "approved", "resumed", "ok"]
    for index, (number, _) in enumerate(events):
        rest = await client.get(f"/runs/{run}/events", headers={"Last-Event-ID": str(number)})
        assert events_in(rest.text) == events[index + 1 :]
    for number in ("x", "-1", "1.5", "9" * 40, "١"):
        response = await client.get(f"/runs/{run}/events", headers={"Last-Event-ID": number.encode()})
        assert error_of(response) == (400, "invalid_arguments")
    told = [json.loads(line[6:]) for line in stream.text.split("\n") if line.startswith("data: ")]
    assert told[0]["run_id"] == run
    assert [each["function"] for each in told if "function" in each] == ["store.merge"]


async def test_head_of_a_stream_ends_while_its_run_goes_on(kept: KeptRuns) -> None:
    run = await kept.start("hang")
    async with http_peer(kept.app) as peer:
        client = AsyncClient(base_url=f"http://127.0.0.1:{peer.port}", headers=kept.headers)
        async with client:
            with anyio.fail_after(DEADLINE_SECONDS):
                head = await client.head(f"/runs/{run}/events")
                assert (await client.get(f"/runs/{run}")).json()["state"] == "running"
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@asynccontextmanager
async def watched(kept: KeptRuns, path: str, **headers: str) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of a stream over a real connection, as they come."""
    async with (
        http_peer(kept.app) as peer,
        AsyncClient(base_url=f"http://127.0.0.1:{peer.port}", timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", path, headers={**kept.headers, **headers}) as response,
    ):
        assert response.status_code == 200
        yield response.aiter_lines()


async def until_line(lines: AsyncIterator[str], wanted: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async for line in lines:
            if line == wanted:
                return
    raise AssertionError(f"the stream ended without {wanted!r}")


async def news_of_others(kept: KeptRuns) -> None:
    """They come more often than a comment."""
    while True:
        kept.runs.changes.wake()
        await anyio.sleep(0.002)


async def test_events_come_while_the_run_goes_on_and_a_silent_stream_is_kept_alive(
    kept: KeptRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE_SECONDS", 0.01)
    run = await kept.start("ask")
    async with watched(kept, f"/runs/{run}/events") as lines:
        await until_line(lines, "event: waiting")
        await until_line(lines, ": keep-alive")
        async with anyio.create_task_group() as others:
            others.start_soon(news_of_others, kept)
            for _ in range(5):
                await until_line(lines, ": keep-alive")
            others.cancel_scope.cancel()
        await kept.runs.cancel(run, None)
        await until_line(lines, "event: cancelled")
        with anyio.fail_after(DEADLINE_SECONDS):
            assert [line async for line in lines if line.startswith("event")] == []


async def test_event_is_delivered_once_to_whom_it_is_for(kept: KeptRuns) -> None:
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=kept.app), base_url="http://127.0.0.1"
    ) as client:  # without the token
        run = await kept.start("event")
        await kept.until(run, "waiting")
        path = await kept.hook(run)
        assert error_of(await client.post("/hooks/wrong", json=1)) == (404, "unknown_hook")
        assert (await client.get(path)).status_code == 405
        assert (await client.post(path, json=1, headers={"Host": "evil.test"})).status_code == 421
        assert (await client.post(path, json=1, headers={"Origin": "https://evil.test"})).status_code == 403
        assert (await client.post(path, json={"version": 3})).status_code == 202
        await kept.until(run, "ok")
        assert (await kept.runs.answer(run, None)).result == {"version": 3}
        assert error_of(await client.post(path, json={"version": 4})) == (404, "unknown_hook")


async def test_payload_that_no_script_could_read_is_not_delivered(
    kept: KeptRuns, client: AsyncClient
) -> None:
    path = await kept.hook(await kept.start("hang"))
    for body in (b"{", b"\xff\xfe", b"[" * 10_000):
        assert error_of(await client.post(path, content=body)) == (400, "invalid_json")
    long = b'"' + b"x" * http.MAX_PAYLOAD_BYTES + b'"'
    assert error_of(await client.post(path, content=long)) == (413, "body_too_large")
    assert (await client.post(path)).status_code == 202
    again = await client.post(path, json=2)
    assert (again.status_code, again.json()["is_first"]) == (200, False)


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_store_that_fails_is_told_without_its_path_and_does_not_end_the_portal(
    kept: KeptRuns, client: AsyncClient, tmp_path: Path, is_damaged: bool
) -> None:
    await kept.until(await kept.start("ok"), "ok")
    with capture_logs() as logs, anyio.fail_after(DEADLINE_SECONDS):
        if is_damaged:
            for path in (tmp_path / "runs.sqlite", tmp_path / "runs.sqlite-wal"):
                with path.open("r+b") as file:
                    file.write(b"\xff" * path.stat().st_size)
        else:
            with sqlite3.connect(tmp_path / "runs.sqlite") as damaged:
                damaged.execute("ALTER TABLE runs RENAME TO lost")
        while not any(each["event"] == "store_out" for each in logs):
            kept.runs.changes.wake()
            await anyio.sleep(0.01)
    response = await client.get("/runs")
    assert error_of(response) == (503, "store_failed")
    assert str(tmp_path) not in response.text


async def test_what_was_written_is_no_failure_if_it_cannot_be_read_afterwards(
    kept: KeptRuns, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads `Try again later` starts the script a second time."""

    async def unread(*_: object) -> None:
        raise StoreError("the disk is full")

    run = await kept.start("ask")
    await kept.until(run, "waiting")
    with monkeypatch.context() as patch:
        patch.setattr(kept.store, "read", unread)
        started = [await client.post(f"/runs{query}", json={"code": "hang"}) for query in ("", "?wait=1")]
        decided = await client.post(f"/runs/{run}/answers/1", json={"decision": "deny"})
        ids = [each.json()["run_id"] for each in started]
        cancelled = [await client.post(f"/runs/{each}/cancel") for each in ids]
    assert [(each.status_code, each.json()["status"]) for each in started] == [(202, "running")] * 2
    assert [each.headers["location"] for each in started] == [f"/runs/{each}" for each in ids]
    assert (decided.status_code, decided.json()["decision"]) == (200, "denied")
    assert [(each.status_code, each.json()["state"]) for each in cancelled] == [(200, "cancelled")] * 2
    listed = (await client.get("/runs")).json()["runs"]
    assert {each["run_id"] for each in listed if each["script"] == "hang"} == {*ids}


async def test_without_a_store_nothing_starts(kept: KeptRuns, client: AsyncClient) -> None:
    kept.runs.store = None
    for response in (await client.post("/runs", json={"code": "ok"}), await client.get("/runs")):
        assert error_of(response) == (503, "runs_unavailable")


async def test_without_a_token_runs_over_stdio_are_unknown_over_http(tmp_path: Path) -> None:
    async with kept_runs(tmp_path, may_decide=False) as kept, kept.client() as client:
        own = await kept.start("ask")
        assert (await client.get(f"/runs/{own}")).status_code == 404
        assert (await client.post(f"/runs/{own}/cancel", json={})).status_code == 404
        run = (await client.post("/runs", json={"code": "ask"})).json()["run_id"]
        assert [each["run_id"] for each in (await client.get("/runs")).json()["runs"]] == [run]


async def test_fork_has_the_profile_of_the_run_or_none(tmp_path: Path) -> None:
    profiles: Json = {"guest": {"tools": {"deny": ["*"]}}}
    async with opened(tmp_path, {"store": Peer()}, runs={"store": "runs.sqlite"}, profiles=profiles) as wide:
        async with served(wide) as origin, AsyncClient(base_url=origin, timeout=DEADLINE_SECONDS) as client:
            code = "await store.echo(n=1)\nawait store.echo(n=2)"
            run = (await client.post("/runs?wait=60", json={"code": code})).json()["run_id"]
        manifest = wide.portal.manifest
        async with (
            open_portal(manifest, lambda line: None, profile="guest") as narrow,
            served(Opened(narrow, wide.client)) as origin,
            AsyncClient(base_url=origin) as client,
        ):
            refused = await client.post(f"/runs/{run}/fork", json={"at": 2})
    assert refused.json()["error"]["code"] == "other_profile"
