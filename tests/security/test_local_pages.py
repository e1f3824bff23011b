"""A page of another origin can do nothing to runs with the requests that a browser sends without asking first."""

from pathlib import Path

import pytest

from tests.portal.kept_runs import kept_runs
from tests.portal.server.test_http_runs import error_of

pytestmark = pytest.mark.anyio

ORIGIN = "http://localhost:3000"
SIMPLE = [
    *(
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "application/json-seq",
    ),
    *("multipart/form-data; boundary=x", "text/application/json", "", None),
]
CHANGES = ["", "/{run}/cancel", "/{run}/fork", "/{run}/answers/1"]


@pytest.mark.parametrize("content_type", SIMPLE)
async def test_a_simple_request_changes_no_run(tmp_path: Path, content_type: str | None) -> None:
    named = {} if content_type is None else {"Content-Type": content_type}
    async with kept_runs(tmp_path) as kept, kept.client(Origin=ORIGIN) as client:
        run = await kept.start("ask")
        await kept.until(run, "waiting")
        for path in CHANGES:
            for body in (b'{"code": "ok", "at": 1, "decision": "approve"}', b""):
                response = await client.post(f"/runs{path.format(run=run)}", content=body, headers=named)
                assert error_of(response) == (415, "unsupported_media_type")
        listed = (await client.get("/runs")).json()["runs"]
        assert [(each["run_id"], each["state"]) for each in listed] == [(run, "waiting")]
        assert (await client.post(await kept.hook(run), content=b"1", headers=named)).status_code == 202


async def test_a_request_of_no_page_needs_the_type_only_with_a_body(tmp_path: Path) -> None:
    async with kept_runs(tmp_path) as kept, kept.client() as client:
        run = await kept.start("ask")
        for body in (b'{"code": "ok"}', b" "):
            response = await client.post("/runs", content=body)
            assert error_of(response) == (415, "unsupported_media_type")
        assert (await client.post(f"/runs/{run}/cancel")).json()["state"] == "cancelled"


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON ; charset=utf-8"])
async def test_a_request_that_says_it_is_json_does(tmp_path: Path, content_type: str) -> None:
    async with kept_runs(tmp_path) as kept, kept.client(**{"Content-Type": content_type}) as client:
        run = (await client.post("/runs", content=b'{"code": "ask"}')).json()["run_id"]
        await kept.until(run, "waiting")
        assert (await client.post(f"/runs/{run}/cancel")).json()["state"] == "cancelled"
