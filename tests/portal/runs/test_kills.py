"""A portal is killed at any instant, and another one goes on: no call is made twice, none is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.durable import EDGES, RANDOM
from tests.portal.commands import ROOT

pytestmark = pytest.mark.timeout(400)

KILLS = 12  # `python -m benchmarks.durable --kills 1000` takes minutes


def test_kills_double_nothing_and_lose_nothing(tmp_path: Path) -> None:
    # In a process of its own, because it forks portals.
    options = ("--kills", str(KILLS), "--to", str(tmp_path / "found"))
    command = [sys.executable, "-m", "benchmarks.durable", *options]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "found").read_text())
    assert (found["doubled"], found["lost"], found["wrong"]) == (0, 0, [])
    assert found["kills"] >= KILLS
    assert found["kills by edge"].keys() == {*EDGES, RANDOM}
    assert 0 < found["unknown"] < found["effects"]
