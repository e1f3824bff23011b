"""A server over stdio, and one that wants tokens, for the tests about signing in."""

from collections.abc import AsyncIterator

import pytest

from tests.portal.peers import Peer
from tests.upstreams.oauth_peer import ProtectedServer, protected
from tests.upstreams.peers import WatchedFleet, fleet_of, raw_server


@pytest.fixture(scope="module")
async def raw() -> AsyncIterator[WatchedFleet]:
    """A raw server, `one`, which is one for all tests that leave it as it was."""
    async with fleet_of(one=raw_server()) as fleet:
        yield fleet


@pytest.fixture
async def server() -> AsyncIterator[ProtectedServer]:
    async with protected(Peer()) as server:
        yield server
