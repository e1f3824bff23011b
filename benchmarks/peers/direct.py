"""No portal at all: the client calls the upstream itself."""

from collections.abc import Collection

import anyio
from mcp import Client

from benchmarks.peers.system import About, Launch, Upstreams


class DirectCalls:
    def names(self) -> Collection[str]:
        return "five_calls", "five_calls_gathered"

    async def perform(self, client: Client, task: str) -> object:
        if task == "five_calls_gathered":
            return await gathered(client)
        return [await call(client, number) for number in range(5)]

    async def keeps_state(self, client: Client) -> bool | None:
        return None


class Direct:
    name = "direct calls"
    tasks = DirectCalls()

    def prepare(self, upstreams: Upstreams) -> Launch:
        return Launch(upstreams.echo)

    def about(self) -> About:
        return About(version="", language="", isolation="no scripts", note="Five round trips of the client.")

    async def count_tools(self, client: Client) -> int:
        return len((await client.list_tools()).tools)


async def gathered(client: Client) -> list[object]:
    answers: list[object] = [None] * 5

    async def one(number: int) -> None:
        answers[number] = await call(client, number)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(one, number)
    return answers


async def call(client: Client, number: int) -> object:
    answer = (await client.call_tool("echo", {"number": number})).structured_content
    return answer["number"] if answer else None
