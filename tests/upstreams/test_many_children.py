"""Hundreds of stdio servers that end at once: each supervisor has little of the processors, and must leave nothing."""

from pathlib import Path

import anyio
import pytest

from tests.upstreams.many_children import LifeLine, portal_with_children
from tests.upstreams.peers import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

CHILDREN = 300


async def test_nothing_of_hundreds_is_left_when_the_portal_is_killed(tmp_path: Path) -> None:
    life_line = LifeLine(tmp_path / "fifo")
    with anyio.fail_after(DEADLINE_SECONDS * 2):
        async with portal_with_children(life_line, CHILDREN) as portal:
            portal.kill()
            await life_line.broken()


async def test_nothing_of_hundreds_is_left_when_the_portal_closes_them_and_nothing_is_complained_of(
    tmp_path: Path,
) -> None:
    life_line = LifeLine(tmp_path / "fifo")
    with anyio.fail_after(DEADLINE_SECONDS * 2):
        async with portal_with_children(life_line, CHILDREN) as portal:
            assert portal.stdin and portal.stderr
            await portal.stdin.aclose()
            told = b"".join([chunk async for chunk in portal.stderr])
            assert await portal.wait() == 0
            await life_line.broken()
    assert told == b""
