"""Calls that a script began and did not wait for: all are told, and none is made behind its back."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from tests.sandbox_runtime.running import EchoPort, Runner

pytestmark = pytest.mark.anyio

LOG = "async def log(i):\n    await git.git_log(count=i)\n"


class Heard:
    """What the host heard of calls: those it entered, and those it made."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.port = EchoPort()

    def open(self, seq: int, function: str) -> None:
        self.opened.append(function)

    def withhold(self, seq: int, error: CallError) -> None:
        """Nothing is kept from the script here."""

    async def __call__(self, call: ToolCall) -> Outcome:
        return await self.port(call)


@pytest.mark.parametrize(
    "script",
    [
        LOG + "for i in range(3):\n    asyncio.create_task(log(i))\nawait asyncio.sleep(0)\n'sent'",
        LOG
        + "async def main():\n    for i in range(3):\n        asyncio.create_task(log(i))\n    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n'sent'",
    ],
)
async def test_calls_of_tasks_that_end_with_the_script_are_entered_and_not_made(
    run: Runner, script: str
) -> None:
    heard = Heard()
    result = await run(script, port=heard, observer=heard)
    assert (result.error, result.value) == (None, "sent")
    assert heard.opened == ["git.git_log"] * 3
    assert heard.port.calls == []


async def test_many_left_behind_do_not_fail_the_script(run: Runner) -> None:
    script = LOG + "for i in range(3000):\n    asyncio.create_task(log(i))\nawait asyncio.sleep(0)\n'sent'"
    heard = Heard()
    result = await run(script, limits=Limits(tool_calls=5), port=heard, observer=heard)
    assert (result.error, result.value, heard.port.calls) == (None, "sent", [])
    assert len(heard.opened) == 3000
