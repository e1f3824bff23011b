"""Stores of runs for tests, in SQLite and in Postgres."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.portal.runs.rows import Tables
from tests.postgres import Postgres, postgres_server


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
