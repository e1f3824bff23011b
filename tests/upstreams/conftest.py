"""A server over stdio, and one that wants tokens, for the tests about signing in."""

from collections.abc import AsyncIterator

import pytest

from tests.portal.peers import Peer
from tests.upstreams.oauth_peer import ProtectedServer, protected
from tests.upstreams.peers import WatchedFleet, fleet_of, raw_server
from upstreams import health, questions
from upstreams.transports import child_process


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here waits for what a server is given on its way out, or before it is tried again."""
    monkeypatch.setattr(child_process, "EOF_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(questions, "_LONGEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(health, "FIRST_PAUSE_SECONDS", 0.05)


@pytest.fixture(scope="module")
async def raw() -> AsyncIterator[WatchedFleet]:
    """A raw server, `one`, which is one for all tests that leave it as it was."""
    async with fleet_of(one=raw_server()) as fleet:
        yield fleet


@pytest.fixture
async def server() -> AsyncIterator[ProtectedServer]:
    async with protected(Peer()) as server:
        yield server
