"""A server that wants tokens, for the tests about signing in."""

from collections.abc import AsyncIterator

import pytest

from tests.portal.peers import Peer
from tests.upstreams.oauth_peer import ProtectedServer, protected


@pytest.fixture
async def server() -> AsyncIterator[ProtectedServer]:
    async with protected(Peer()) as server:
        yield server
