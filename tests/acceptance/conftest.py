"""Skip tests of process trees where /proc or pidfds are missing; and one Chromium for the tests of a module."""

import sys
from collections.abc import AsyncIterator

import pytest

from tests.acceptance import browser

collect_ignore = [] if sys.platform == "linux" else ["test_orphans.py"]


@pytest.fixture(scope="module")
async def browser_process(anyio_backend: str) -> AsyncIterator["browser.Browser"]:
    async with browser.chromium() as process:
        yield process


@pytest.fixture
async def chromium(browser_process: "browser.Browser") -> AsyncIterator[browser.Chromium]:
    """Tabs that must not have faults when the test ends."""
    tabs = browser.Chromium(browser_process)
    yield tabs
    await tabs.close()
