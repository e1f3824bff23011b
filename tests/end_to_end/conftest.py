"""A portal costs seconds to start, so one serves all tests of a module."""

import sys

import pytest

# Process trees are looked at through /proc and pidfds.
collect_ignore = [] if sys.platform == "linux" else ["test_orphans.py"]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"
