"""Registries and tasks of others, as they were recorded; the recordings are kept beside the repository.

What was learnt from them is tested without them, too (`tests/portal/library/sample_tools.py`). Here they add breadth.
"""

import gzip
import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.acceptance.model import Json
from tests.acceptance.portal_process import stdio_model, write_manifest
from tests.acceptance.test_command_line import portal

RECORDED = Path(__file__).parents[3] / "shared"
REGISTRIES = RECORDED / "data/registries.jsonl.gz"
TASKS = RECORDED / "tasks"
LISTING_SERVER = str(Path(__file__).parent / "peers/listing_server.py")
EVERY_REGISTRY = 15
EVERY_TASK = 39


def rows(*files: Path) -> Iterator[Json]:
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


@pytest.mark.anyio
@pytest.mark.skipif(not REGISTRIES.exists(), reason="the recorded registries are kept beside the repository")
async def test_tools_of_recorded_registries_are_typed_functions(tmp_path: Path) -> None:
    upstreams: dict[str, dict[str, Json]] = {}
    tools: set[tuple[str, str]] = set()
    for row in list(rows(REGISTRIES))[::EVERY_REGISTRY]:
        file = tmp_path / f"{len(upstreams)}.json"
        file.write_text(json.dumps(row["tools"]))
        upstreams[row["server"]] = {"command": sys.executable, "args": [LISTING_SERVER, str(file)]}
        tools |= {(row["server"], tool["name"]) for tool in row["tools"]}
    manifest = write_manifest(tmp_path, upstreams)
    async with stdio_model(manifest) as model:
        listed = (await model.search())["namespaces"]
        assert sum(row["functions"] for row in listed) == len(tools)
        assert {row["state"] for row in listed} == {"ready"}
    stubs = tmp_path / "stubs"
    assert portal("stubs", "--out", str(stubs), "--config", str(manifest)).returncode == 0
    ty = str(Path(sysconfig.get_path("scripts"), "ty"))
    done = await anyio.run_process([ty, "check", "--output-format", "concise", "."], cwd=stubs, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.servers
@pytest.mark.timeout(400)
@pytest.mark.skipif(not TASKS.exists(), reason="the recorded tasks are kept beside the repository")
def test_scripts_of_recorded_tasks_make_their_calls_and_get_their_results() -> None:
    """One in 39; `python -m benchmarks.tasks` runs all, and says what they cost."""
    chosen = [row["id"] for row in rows(*sorted(TASKS.glob("*.jsonl.gz")))][::EVERY_TASK]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tasks", "--tasks", str(TASKS), "--only", *chosen],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=360,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(chosen)} of {len(chosen)} tasks" in done.stdout
