"""Eight real servers, from npm and PyPI, behind one portal, over each transport in turn."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp_types import ImageContent

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import http_model, http_portal, stdio_model, write_manifest
from tests.acceptance.scratch import (
    git_output,
    make_database,
    make_repository,
    redis_answer,
    redis_server,
    rows,
)
from tests.acceptance.tool_listing import assert_every_tool_is_a_function

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

UPSTREAMS = ("everything", "files", "memory", "thinking", "git", "time", "shop", "cache")


@dataclass(frozen=True)
class Scene:
    """The servers' data."""

    folder: Path
    redis_port: int

    @property
    def servers(self) -> dict[str, dict[str, Json]]:
        return {
            "everything": real_servers.everything(),
            "files": real_servers.filesystem(self.folder),
            "memory": real_servers.memory(self.folder / "memory.jsonl"),
            "thinking": real_servers.sequential_thinking(),
            "git": real_servers.git(self.folder / "repository"),
            "time": real_servers.time(),
            "shop": real_servers.sqlite(self.folder / "shop.db"),
            "cache": real_servers.redis(self.redis_port),
        }


@pytest.fixture(scope="module", params=["stdio", pytest.param("http", marks=pytest.mark.release)])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def scene(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("npm_servers")
    make_repository(folder / "repository")
    make_database(folder / "shop.db")
    with redis_server(folder) as port:
        yield Scene(folder, port)


@pytest.fixture(scope="module")
async def model(transport: str, scene: Scene) -> AsyncIterator[Model]:
    # files.write_file declares itself destructive, so a rule has to name it.
    granted: Json = {"tools": {"allow": ["*", "files.write_file"]}}
    server: Json = {"output_tokens": 100_000}
    manifest = write_manifest(scene.folder, scene.servers, server=server, capabilities=granted)
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            yield await stack.enter_async_context(stdio_model(manifest))
        else:
            portal = stack.enter_context(http_portal(manifest))
            yield await stack.enter_async_context(http_model(portal))


async def test_all_eight_are_ready(model: Model) -> None:
    namespaces = (await model.search())["namespaces"]
    assert {row["upstream"]: row["state"] for row in namespaces} == dict.fromkeys(UPSTREAMS, "ready")


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_every_tool_is_a_function(model: Model, scene: Scene, upstream: str) -> None:
    await assert_every_tool_is_a_function(model, upstream, scene.servers[upstream])


async def test_script_writes_a_file(model: Model, scene: Scene) -> None:
    path = scene.folder / "tea.txt"
    await model.result_of(f"await files.write_file(path={str(path)!r}, content='Assam \u2615\\n')")
    assert path.read_text() == "Assam \u2615\n"


async def test_script_sets_a_key(model: Model, scene: Scene) -> None:
    await model.result_of("await cache.set(key='leaf', value='Assam')")
    assert redis_answer(scene.redis_port, "GET", "leaf") == "$5\r\nAssam\r\n"


async def test_script_remembers_entities_and_a_relation_named_from(model: Model, scene: Scene) -> None:
    await model.result_of(
        """
await memory.create_entities(entities=[
    {"name": name, "entityType": "leaf", "observations": []} for name in ("Assam", "Ceylon")
])
await memory.create_relations(relations=[{"from": "Assam", "to": "Ceylon", "relationType": "darker than"}])
"""
    )
    lines = [json.loads(line) for line in (scene.folder / "memory.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines if line["type"] == "entity"] == ["Assam", "Ceylon"]
    assert [(line["from"], line["to"]) for line in lines if line["type"] == "relation"] == [
        ("Assam", "Ceylon")
    ]


async def test_script_carries_what_one_server_answers_to_four_others(model: Model, scene: Scene) -> None:
    """Reads the shop, and in parallel writes a file and a key and remembers; then it commits the file."""
    repository = scene.folder / "repository"
    answer = await model.run(
        f"""
import asyncio, json
orders = await shop.read_query(query="select item, price from orders order by id")
total = sum(order["price"] for order in orders)
await asyncio.gather(
    files.write_file(path={str(repository / "total.json")!r}, content=json.dumps({{"total": total}})),
    cache.set(key="total", value=str(total)),
    memory.create_entities(entities=[{{"name": "total", "entityType": "sum", "observations": [str(total)]}}]),
    shop.write_query(query=f"insert into orders (item, price) values ('sum', {{total}})"),
)
await git.git_add(repo_path={str(repository)!r}, files=["total.json"])
await git.git_commit(repo_path={str(repository)!r}, message="Count the orders")
total
"""
    )
    assert answer["status"] == "ok", answer
    assert answer["result"] == 25.5
    assert [call["state"] for call in answer["calls"]] == ["done"] * 7
    assert json.loads(git_output(repository, "show", "HEAD:total.json")) == {"total": 25.5}
    assert redis_answer(scene.redis_port, "GET", "total") == "$4\r\n25.5\r\n"
    assert rows(scene.folder / "shop.db", "select price from orders where item = 'sum'") == [(25.5,)]


async def test_structured_output_is_python_data(model: Model) -> None:
    weather = await model.result_of("await everything.get_structured_content(location='Chicago')")
    assert set(weather) == {"temperature", "conditions", "humidity"}


async def test_a_tool_with_dashes_is_called_by_its_python_name(model: Model) -> None:
    assert "5" in await model.result_of("await everything.get_sum(a=2, b=3)")


async def test_thought_is_counted(model: Model) -> None:
    thought = "thought='Boil', thoughtNumber=1, totalThoughts=1, nextThoughtNeeded=False"
    answer = await model.result_of(f"await thinking.sequentialthinking({thought})")
    assert answer["thoughtNumber"] == 1


async def test_image_reaches_the_client(model: Model) -> None:
    result = await model.call(
        "execute_code",
        {
            "code": """
import portal
blocks = await everything.get_tiny_image()
for block in blocks:
    if block["type"] == "image":
        portal.emit(block)
[block["type"] for block in blocks]
"""
        },
    )
    assert not result.is_error, result.content
    images = [block for block in result.content if isinstance(block, ImageContent)]
    assert [image.mime_type for image in images] == ["image/png"]
    assert images[0].data.startswith("iVBOR")


async def test_error_of_a_tool_is_caught_with_its_own_text(model: Model) -> None:
    told = await model.result_of(
        """
try:
    await files.read_text_file(path="/etc/passwd")
except ToolError as error:
    told = str(error)
told
"""
    )
    assert "outside allowed directories" in told
