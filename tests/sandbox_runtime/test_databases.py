"""Databases of a workspace where no comparison would do; `test_files.py` compares the others with those on a disk."""

import sqlite3

import pytest

from tests.sandbox_runtime.granted_files import FileRunner

pytestmark = pytest.mark.anyio

OPEN = """
import sqlite3
def rows():
    with sqlite3.connect("f.db") as d: return [x for x, in d.execute("select x from t order by x")]
c = sqlite3.connect("f.db", autocommit=%s)
c.execute("create table t(x)")
c.commit()
c.execute("insert into t values (1)")
"""


def stored(files: FileRunner) -> list[int]:
    database = sqlite3.connect(files.folder / "f.db")
    try:
        return [x for (x,) in database.execute("select x from t order by x")]
    finally:
        database.close()


@pytest.mark.parametrize(
    "end, expected",
    [
        ("c.commit()", [1]),
        ("c.commit()\nc.close()", [1]),
        ("c.commit()\nc.execute('insert into t values (2)')\nc.close()", [1]),
        ("c.commit()\nc.execute('insert into t values (2)')\nc.rollback()", [1]),
        ("c.commit()\nc.execute('insert into t values (2)')\nc.execute('commit')", [1, 2]),
        ("c.commit()\nc.execute('insert into t values (2)')\nc.autocommit = True", [1, 2]),
        ("c.commit()\nwith c: c.execute('insert into t values (2)')", [1, 2]),
        ("try:\n    with c: c.execute('not sql')\nexcept sqlite3.Error: pass", []),
        ("c.rollback()", []),
        ("", []),
        ("c.close()", []),
    ],
)
async def test_what_was_committed_is_kept_where_a_transaction_is_always_open(
    files: FileRunner, end: str, expected: list[int]
) -> None:
    assert await files.value(f"{OPEN % False}{end}\nrows()") == expected
    assert stored(files) == expected


@pytest.mark.parametrize("gone", ["os.remove('f.db')", "os.replace('fresh', 'f.db')"])
async def test_removed_or_replaced_database_is_readable_and_takes_no_commit(
    files: FileRunner, gone: str
) -> None:
    """As SQLite has it: what was committed would be nowhere."""
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
