"""What docs/operating.md tells operators to watch is there, and pictures of runs show the states that there are."""

import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from portal.records.store.records import RunState
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operating.md").read_text("utf-8")


def test_every_number_and_event_to_watch_is_there() -> None:
    watched = PAGE.partition("## What to watch")[2].partition("\n## ")[0]
    numbers = set(re.findall(r"mcp_code_portal_[a-z_]+(?=[{)])", watched)) - {"mcp_code_portal_upstream"}
    told = re.findall(r"`(mcp_code_portal\.[a-z.]+)`", (ROOT / "docs/telemetry.md").read_text("utf-8"))
    known = {name.replace(".", "_") + end for name in told for end in ("", "_seconds_count")}
    assert len(numbers) == 3 and numbers <= known
    events = re.findall(r"`([a-z]+_[a-z_]+)`", watched.partition("in the log")[2])
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "portal").rglob("*.py"))
    assert events and [event for event in events if f'("{event}"' not in sources] == []


def test_pictures_show_every_state_of_a_run() -> None:
    picture = (ROOT / "docs/pictures/run-states.svg").read_text("utf-8")
    shown = re.findall(r'<text [^>]*font-weight="600">(\w+)<', picture)
    assert sorted(shown) == sorted(get_args(RunState))
    told = re.findall(
        r"(?m)^\| (`.*?) \|", (ROOT / "docs/runs.md").read_text("utf-8").partition("**The journal")[0]
    )
    assert sorted(re.findall(r"`(\w+)`", " ".join(told))) == sorted(get_args(RunState))


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the backup of docs/operating.md needs sqlite3")
def test_a_store_is_copied_whole_while_a_portal_has_it_open(tmp_path: Path) -> None:
    [command] = re.findall(r"\$ (sqlite3 runs.sqlite \".*)", PAGE.partition("## Tokens")[0])
    (tmp_path / "backup").mkdir()
    with closing(RunTables(SqliteDatabase(tmp_path / "runs.sqlite"), "key", "portal")) as tables:
        with tables.transaction():
            tables.put("kind", "owner", "name", b"value")
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    with closing(RunTables(SqliteDatabase(tmp_path / "backup/runs.sqlite"), "key")) as copy:
        assert copy.get("kind", "owner", "name") == b"value"
