"""Nothing is written while somebody reads."""

import anyio
import pytest

from portal.catalog import ReadingGate
from tests.portal.peers import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio


async def test_a_writer_waits_for_readers_and_later_readers_for_it() -> None:
    gate = ReadingGate()
    happened: list[str] = []
    first_may_go, writer_may_go = anyio.Event(), anyio.Event()

    async def read(name: str, until: anyio.Event | None = None) -> None:
        async with gate.reading():
            happened.append(f"{name} began")
            if until is not None:
                await until.wait()
            happened.append(f"{name} ended")

    async def write() -> None:
        async with gate.writing():
            happened.append("writing began")
            await writer_may_go.wait()
            happened.append("writing ended")

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, "first", first_may_go)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(read, "second")
            await anyio.wait_all_tasks_blocked()
            assert happened == ["first began"]
            first_may_go.set()
            await anyio.wait_all_tasks_blocked()
            assert happened[1:] == ["first ended", "writing began"]
            writer_may_go.set()
    assert happened[3:] == ["writing ended", "second began", "second ended"]


async def test_a_writer_that_is_cancelled_keeps_nobody_out() -> None:
    gate = ReadingGate()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with gate.reading():
            with anyio.move_on_after(0):
                async with gate.writing():
                    pass
        async with gate.reading():
            pass
