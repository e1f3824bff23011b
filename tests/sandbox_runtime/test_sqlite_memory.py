"""SQLite works on more than its cache holds, where it would use temporary files: an instance can have none."""

import sqlite3
from pathlib import Path

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.granted_files import granted
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

ROWS = 100_000
FILL = f"""
import sqlite3
def fill(d):
    d.execute("create table o(c, t)")
    d.executemany("insert into o values (?, ?)", ((f"customer {{i * 7919 % 50000}}", i % 97) for i in range({ROWS})))
"""


@pytest.mark.parametrize(
    "query",
    [
        "select c, sum(t) s from o group by c order by s desc, c limit 3",
        "select count(*) from (select distinct c, t from o)",
        "create index i on o(c)",
        "create temp table x as select * from o",
        "vacuum",
    ],
)
async def test_query_over_many_rows_answers_as_anywhere(run: Runner, query: str) -> None:
    script = f"{FILL}\nd = sqlite3.connect(':memory:', isolation_level=None)\nfill(d)\n"
    outside: dict[str, list[tuple[object, ...]]] = {}
    exec(f"{script}rows = d.execute({query!r}).fetchall()", outside)
    assert await run.value(f"{script}d.execute({query!r}).fetchall()") == [*map(list, outside["rows"])]


async def test_database_of_the_workspace_is_vacuumed(run: Runner, tmp_path: Path) -> None:
    script = f"{FILL}\nd = sqlite3.connect('f.db')\nfill(d)\nd.commit()\nd.execute('vacuum')\n"
    async with granted(run, tmp_path) as files:
        assert await files.value(f"{script}d.execute('select count(*) from o').fetchall()") == [[ROWS]]
    database = sqlite3.connect(tmp_path / "f.db")
    assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
    database.close()


async def test_what_it_keeps_in_memory_counts_as_the_memory_of_the_script(run: Runner) -> None:
    script = """
import sqlite3
numbers = "with recursive n(x) as (select 1 union all select x + 1 from n limit %d)"
d = sqlite3.connect(":memory:")
d.execute(f"create temp table b as {numbers} select x, randomblob(1000) from n")
d.execute("select count(*) from b").fetchone()
"""
    assert await run.code(script % 1_000_000, limits=Limits(memory_mib=64, wall_seconds=60)) == "memory_limit"
    assert await run.value(script % 1000) == [1000]
