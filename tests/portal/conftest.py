"""Commands that a test runs, and a person who imports the configurations of clients.

Where process trees cannot be looked at through /proc and pidfds, the tests that do are left out.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.portal.commands import PortalCommand, portal_command
from tests.portal.homes import Person
from tests.portal.issuer import Issuer, issuing
from tests.portal.peers import Peer
from tests.upstreams.oauth_peer import ProtectedServer, protected

collect_ignore = [] if sys.platform == "linux" else ["test_endings.py"]


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PortalCommand:
    return portal_command(monkeypatch, capsys)


@pytest.fixture
def person(tmp_path: Path, portal: PortalCommand) -> Person:
    return Person(tmp_path, portal)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        yield issuer


@pytest.fixture
async def server() -> AsyncIterator[ProtectedServer]:
    async with protected(Peer()) as server:
        yield server
