"""Somebody who imports what clients are configured with.

Where process trees cannot be looked at through /proc and pidfds, the tests that do are left out.
"""

import sys
from pathlib import Path

import pytest

from tests.portal.client_files.homes import Home
from tests.portal.client_files.person import Person
from tests.portal.commands import portal_command

collect_ignore = [] if sys.platform == "linux" else ["test_endings.py", "test_worker_loss.py"]


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(Home(tmp_path), portal_command(monkeypatch, capsys))
