"""Commands that a test runs, a person who imports the configurations of clients, and stores of runs.

Where process trees cannot be looked at through /proc and pidfds, the tests that do are left out.
"""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from portal.catalog.check.language_server import TypeChecker
from portal.records.store.run_tables import RunTables
from tests.portal.commands import PortalCommand, portal_command
from tests.portal.homes import Person
from tests.portal.issuer import Issuer, issuing
from tests.portal.peers import Peer
from tests.portal.rows import Tables
from tests.postgres import Postgres, postgres_server
from tests.upstreams.oauth_peer import ProtectedServer, protected

CHECKING = {"check", "test_catalog", "test_kernels", "test_observed_results", "test_serving"}
"""The folder and the files whose scripts a type checker reads."""

collect_ignore = [] if sys.platform == "linux" else ["cli/test_endings.py"]


async def no_findings(*_: object) -> list[object]:
    return []


@pytest.fixture(scope="module", autouse=True)
def unchecked(request: pytest.FixtureRequest) -> Iterator[None]:
    """In tests of something else a type checker for each portal would cost more than all that they do."""
    with pytest.MonkeyPatch.context() as patch:
        if CHECKING.isdisjoint((request.path.parent.name, request.path.stem)):
            patch.setattr(TypeChecker, "findings", no_findings)
        yield


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PortalCommand:
    return portal_command(monkeypatch, capsys)


@pytest.fixture
def person(tmp_path: Path, portal: PortalCommand, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("HOME", str(tmp_path))
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
