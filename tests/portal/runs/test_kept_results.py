"""Results that do not fit into an answer are stored under a handle, for their owner, for a while."""

import time
from functools import partial
from pathlib import Path

import anyio

from portal.records.store.run_tables import RunTables
from portal.records.store.tables import DAY_SECONDS
from tests.portal.peers import DEADLINE_SECONDS, Opened, opened

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
    async with opened(tmp_path, runs={"keep_days": 2}) as portal:
        assert "kept" not in await portal.run("print('short')\n'x' * 100")
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


async def earlier(portal: Opened, run: str) -> str:
    """The code of the error of an earlier run; "" if it goes well."""
    with anyio.fail_after(DEADLINE_SECONDS):
        answer = (await portal.call("execute_code", run=run)).structured_content or {}
    return answer["error"]["code"] if answer["error"] else ""
