"""What did not fit into an answer is kept behind a handle, for its owner, for a while."""

import time
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from manifests.json_value import Json
from portal.http_access import HttpAccess
from portal.server import build_server
from portal.serving import build_http_app
from portal.store.run_tables import RunTables
from portal.store.tables import DAY_SECONDS
from tests.portal.peers import DEADLINE_SECONDS, Opened, opened
from tests.portal.runs.kept_runs import ALICE, BOB, BOUND
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

RUNS: Json = {"store": "runs.sqlite", "keep_days": 2}
LONG = "'a line\\n' * 20_000 + 'The needle, ' + 'another line\\n' * 20_000"


def find(handle: str) -> str:
    return f"""
try:
    found = len(await portal.recall({handle!r}))
except ToolError as error:
    found = error.code
try:
    hits = await portal.search_text({handle!r}, "THE NEEDLE", context=3)
except ToolError as error:
    hits = error.code
[found, hits]
"""


async def test_what_does_not_fit_is_there_for_a_later_script_as_long_as_it_is_kept(tmp_path: Path) -> None:
    size = len("a line\n" * 20_000 + "The needle, " + "another line\n" * 20_000)
    async with opened(tmp_path, runs=RUNS) as portal:
        answer = await portal.run(f"print('x' * 200_000)\n{LONG}")
        kept = answer["kept"]
        assert kept.keys() == {"result", "stdout"}
        assert any(kept["result"] in notice for notice in answer["notices"])
        hits = [{"position": 7 * 20_000, "text": "ne\nThe needle, a"}]
        assert await portal.result_of(find(kept["result"])) == [size, hits]
        assert await portal.result_of(find(kept["stdout"])) == [200_001, []]
        sweep = partial(RunTables.sweep, keep_seconds=2 * DAY_SECONDS)
        write = portal.portal.runs.store_or_error().write
        await write(partial(sweep, now=time.time() + 1.9 * DAY_SECONDS))
        assert (await portal.result_of(find(kept["result"])))[0] == size
        await write(partial(sweep, now=time.time() + 2.1 * DAY_SECONDS))
        assert await portal.result_of(find(kept["result"])) == ["unknown_handle"] * 2


async def test_what_fits_is_not_kept(tmp_path: Path) -> None:
    async with opened(tmp_path, runs=RUNS) as portal:
        assert "kept" not in await portal.run("print('short')\n'x' * 100")


async def test_runs_and_kept_results_of_one_token_are_unknown_to_another(tmp_path: Path) -> None:
    async with opened(tmp_path, runs=RUNS, server={"tokens": BOUND}) as portal:
        settings = portal.portal.manifest.portal.server
        app = build_http_app(portal.portal, build_server(portal.portal), HttpAccess("127.0.0.1", settings))
        async with http_peer(app) as served:
            answers: dict[str, list[Json]] = {}
            kept, run = "", ""
            for name, headers in (("alice", ALICE), ("bob", BOB)):
                async with (
                    httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
                    Client(
                        streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http)
                    ) as client,
                ):
                    own = Opened(portal.portal, client)
                    if not run:
                        kept = (await own.run(LONG))["kept"]["result"]
                        result = await own.call("execute_code", code="1 + 1", background=True)
                        run = (result.structured_content or {})["run_id"]
                    answers[name] = [
                        await own.result_of(find(handle)) for handle in (kept, f"kept_{'0' * 32}")
                    ] + [await earlier(own, name) for name in (run, f"run_{'0' * 32}")]
    (size, _), unknown, own_run, none = answers["alice"]
    assert size > 100_000 and unknown == ["unknown_handle"] * 2
    assert (own_run, none) == ("", "unknown_run")
    assert answers["bob"] == [unknown, unknown, "unknown_run", "unknown_run"]


async def earlier(portal: Opened, run: str) -> str:
    """The code of the error of an earlier run; "" if it goes well."""
    with anyio.fail_after(DEADLINE_SECONDS):
        answer = (await portal.call("execute_code", run=run)).structured_content or {}
    return answer["error"]["code"] if answer["error"] else ""
