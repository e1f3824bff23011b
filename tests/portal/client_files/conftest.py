"""A home of its own for each test."""

from pathlib import Path

import pytest

from tests.portal.client_files.homes import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)
