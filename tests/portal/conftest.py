"""One event loop for all tests here, so that several can share a portal."""

import sys

import pytest

# Process trees are looked at through /proc and pidfds.
collect_ignore = [] if sys.platform == "linux" else ["test_endings.py", "test_worker_loss.py"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
