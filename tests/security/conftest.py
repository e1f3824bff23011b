"""Bait around the sandbox, and ways to run hostile scripts in it."""

from collections.abc import Iterator

import pytest

from sandbox_runtime.sandbox import Sandbox
from tests.security.arena import Arena
from tests.security.bait import Bait, laid


@pytest.fixture(scope="session")
def bait(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bait]:
    with laid(tmp_path_factory.mktemp("bait")) as bait:
        yield bait


@pytest.fixture
def arena(sandbox: Sandbox, bait: Bait) -> Arena:
    return Arena(sandbox, bait)
