"""Commands that a test runs, a person who imports the configurations of clients, and stores of runs.

Where process trees cannot be looked at through /proc and pidfds, the tests that do are left out.
"""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from portal.records.store.run_tables import RunTables
from tests.portal.commands import PortalCommand, portal_command
from tests.portal.homes import Person
from tests.portal.issuer import Issuer, issuing
from tests.portal.peers import Peer
from tests.portal.rows import Tables
from tests.postgres import Postgres, postgres_server
from tests.upstreams.oauth_peer import ProtectedServer, protected

collect_ignore = [] if sys.platform == "linux" else ["cli/test_endings.py"]


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server that tests share, each with a database of its own."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.servers)])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """Empty tables of runs, in each database. Each call is another connection."""
    is_file = request.param == "sqlite"
    tables = Tables(tmp_path if is_file else request.getfixturevalue("postgres").new_database())
    yield tables
    tables.close()


@pytest.fixture
def file(tables: Tables) -> RunTables:
    return tables()
