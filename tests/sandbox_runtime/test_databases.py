"""Databases where no comparison would do; `test_files.py` compares the others with those on a disk.

An instance can have no temporary files, which SQLite would use for more than its cache holds.
"""

import sqlite3
from pathlib import Path

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.granted_files import FileRunner
from tests.sandbox_runtime.running import Runner

OPEN = """
import sqlite3
def rows():
    with sqlite3.connect("f.db") as d: return [x for x, in d.execute("select x from t order by x")]
c = sqlite3.connect("f.db", autocommit=%s)
c.execute("create table t(x)")
c.commit()
c.execute("insert into t values (1)")
"""
TWO = "c.commit()\nc.execute('insert into t values (2)')\n"
ROWS = 100_000
FILL = f"""
import sqlite3
def fill(d):
    d.execute("create table o(c, t)")
    numbers = "with recursive n(i) as (select 0 union all select i + 1 from n limit {ROWS})"
    d.execute(f"insert into o {{numbers}} select 'customer ' || (i * 7919 % 50000), i % 97 from n")
"""


def stored(folder: Path, query: str) -> list[object]:
    database = sqlite3.connect(folder / "f.db")
    try:
        return [x for (x,) in database.execute(query)]
    finally:
        database.close()


@pytest.mark.parametrize(
    "end, expected",
    [
        ("c.commit()", [1]),
        (f"{TWO}c.close()", [1]),
        (f"{TWO}c.rollback()", [1]),
        (f"{TWO}c.execute('commit')", [1, 2]),
        (f"{TWO}c.autocommit = True", [1, 2]),
        ("c.commit()\nwith c: c.execute('insert into t values (2)')", [1, 2]),
        ("try:\n    with c: c.execute('not sql')\nexcept sqlite3.Error: pass", []),
        ("", []),
    ],
)
async def test_what_was_committed_is_kept_where_a_transaction_is_always_open(
    files: FileRunner, end: str, expected: list[object]
) -> None:
    assert await files.value(f"{OPEN % False}{end}\nrows()") == expected
    assert stored(files.folder, "select x from t order by x") == expected


@pytest.mark.parametrize("gone", ["os.remove('f.db')", "os.replace('fresh', 'f.db')"])
async def test_removed_or_replaced_database_can_be_read_and_not_changed(files: FileRunner, gone: str) -> None:
    """As with SQLite: committed data would be lost."""
    script = f"""{OPEN % True}
import os
open('fresh', 'w').write('fresh')
{gone}
rows = [row for row, in c.execute('select x from t')]
c.execute('insert into t values (2)')
try:
    c.commit()
except sqlite3.OperationalError as error:
    rows.append('readonly' in str(error))
c.close()
rows"""
    assert await files.value(script) == [1, True]
    assert files.names() == (["fresh"] if "remove" in gone else ["f.db"])


@pytest.mark.parametrize(
    "query",
    [
        "select c, sum(t) s from o group by c order by s desc, c limit 3",
        "create temp table x as select * from o",
        "vacuum",
    ],
)
async def test_query_over_many_rows_answers_as_anywhere(run: Runner, query: str) -> None:
    script = f"{FILL}\nd = sqlite3.connect(':memory:', isolation_level=None)\nfill(d)\n"
    outside: dict[str, list[tuple[object, ...]]] = {}
    exec(f"{script}rows = d.execute({query!r}).fetchall()", outside)
    assert await run.value(f"{script}d.execute({query!r}).fetchall()") == [*map(list, outside["rows"])]


async def test_database_of_the_workspace_is_vacuumed(files: FileRunner) -> None:
    script = f"{FILL}\nd = sqlite3.connect('f.db')\nfill(d)\nd.commit()\nd.execute('vacuum')\n"
    assert await files.value(f"{script}d.execute('select count(*) from o').fetchall()") == [[ROWS]]
    assert stored(files.folder, "pragma integrity_check") == ["ok"]


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
