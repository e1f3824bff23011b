"""The portal offers resources and prompts of upstreams itself if its manifest allows it, under the same rules."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ResourceListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AnyUrl

from manifests.json_value import Json
from tests.portal.chatty_server import SECRET
from tests.portal.clients import CLIENTS, UPSTREAMS, chatty_upstreams, client_of, one_chatty
from tests.portal.peers import DEADLINE_SECONDS

OFFERS: Json = {"offers": ["resources", "prompts"]}


async def ready(client: Client) -> None:
    """Return when all upstreams are there: a search waits for them."""
    await client.call_tool("docs_search", {"query": ""})


@pytest.fixture(scope="module", params=CLIENTS, ids="-".join)
async def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    transport, mode = request.param
    folder = tmp_path_factory.mktemp("own_offer")
    async with (
        chatty_upstreams() as upstreams,
        client_of(folder, upstreams, transport, mode, {"cache": None}, server=OFFERS) as ear,
    ):
        await ready(ear.client)
        yield ear.client


async def test_resources_of_all_upstreams_are_listed_and_read(client: Client) -> None:
    listed = (await client.list_resources()).resources
    wanted = [f"portal://{name}/{uri}" for name in UPSTREAMS for uri in ("note://a", "note://b?x=1#y")]
    assert [each.uri for each in listed] == wanted
    assert [each.name for each in listed[:2]] == ["http_modern.a", "http_modern.b"]
    assert (listed[0].mime_type, listed[0].size, listed[1].description) == ("text/plain", 5, "the second")
    for resource in listed:
        contents = (await client.read_resource(resource.uri)).contents
        assert contents[0].text == f"text of {resource.uri.split('/', 3)[3]}"
        assert {each.uri for each in contents} == {resource.uri}
    templates = (await client.list_resource_templates()).resource_templates
    assert [each.uri_template for each in templates] == [f"portal://{up}/note://{{name}}" for up in UPSTREAMS]


async def test_prompts_of_all_upstreams_are_listed_and_filled_in(client: Client) -> None:
    prompts = (await client.list_prompts()).prompts
    assert [each.name for each in prompts] == [f"{name}.greet" for name in UPSTREAMS]
    for prompt in prompts:
        assert [(each.name, each.required) for each in prompt.arguments or []] == [("who", True)]
        filled = await client.get_prompt(prompt.name, {"who": "Ada"})
        assert filled.messages[0].content.text == "Greet Ada!"
    for unknown in ("greet", "nobody.greet", ""):
        with pytest.raises(MCPError):
            await client.get_prompt(unknown, {"who": "x"})


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("note://a", INVALID_PARAMS),
        ("portal://nobody/note://a", INVALID_PARAMS),
        ("portal://http_modern", INVALID_PARAMS),
        ("portal://http_modern/note://missing", INVALID_PARAMS),
        ("portal://stdio_legacy/note://big", INTERNAL_ERROR),
        ("file:///etc/passwd", INVALID_PARAMS),
    ],
)
async def test_what_cannot_be_read_is_an_error_without_secrets(client: Client, uri: str, code: int) -> None:
    with pytest.raises(MCPError) as caught:
        await client.read_resource(uri)
    assert caught.value.code == code and SECRET not in str(caught.value)
    assert code == INTERNAL_ERROR or caught.value.data == {"uri": uri}


async def test_secrets_of_other_upstreams_in_uris_and_names_are_masked(tmp_path: Path) -> None:
    async with one_chatty() as (up, upstreams):
        up.ending = SECRET
        upstreams["other"] = {**upstreams["up"], "headers": {"Authorization": f"Bearer {SECRET}"}}
        async with client_of(tmp_path, upstreams, "http", "auto", server=OFFERS) as ear:
            await ready(ear.client)
            (_, resource, *_), (template, _), (prompt, _) = (
                (await ear.client.list_resources()).resources,
                (await ear.client.list_resource_templates()).resource_templates,
                (await ear.client.list_prompts()).prompts,
            )
    names = [prompt.name, *(each.name for each in prompt.arguments or ())]
    assert [resource.uri, template.uri_template, *names] == [
        f"{each}[hidden]"
        for each in ("portal://up/note://b?x=1#y", "portal://up/note://{name}", "up.greet", "who")
    ]


async def test_a_uri_that_a_client_has_parsed_is_read(tmp_path: Path) -> None:
    async with (
        one_chatty() as (_, upstreams),
        client_of(tmp_path, {"größe": upstreams["up"]}, "http", "auto", server=OFFERS) as ear,
    ):
        await ready(ear.client)
        uri = (await ear.client.list_resources()).resources[0].uri
        assert (uri, str(AnyUrl(uri))) == ("portal://größe/note://a", "portal://gr%C3%B6%C3%9Fe/note://a")
        contents = (await ear.client.read_resource(str(AnyUrl(uri)))).contents
        assert contents == (await ear.client.read_resource(uri)).contents


async def test_without_the_manifests_word_nothing_is_offered(tmp_path: Path) -> None:
    async with one_chatty() as (_, upstreams), client_of(tmp_path, upstreams, "http", "auto") as ear:
        capabilities = ear.client.server_capabilities
        assert (capabilities.resources, capabilities.prompts) == (None, None)
        with pytest.raises(MCPError):
            await ear.client.list_resources()


@pytest.mark.parametrize(
    "rules", [{"deny": ["up.*"]}, {"deny": ["resources/*", "prompts/*"]}, {"allow": ["up.count"]}]
)
async def test_rules_for_scripts_hold_for_clients(tmp_path: Path, rules: Json) -> None:
    async with one_chatty() as (up, upstreams):
        sections = {"server": OFFERS, "capabilities": {"tools": rules}}
        async with client_of(tmp_path, upstreams, "http", "auto", **sections) as ear:
            await ready(ear.client)
            assert (await ear.client.list_resources()).resources == []
            assert (await ear.client.list_prompts()).prompts == []
            with pytest.raises(MCPError) as caught:
                await ear.client.read_resource("portal://up/note://a")
            assert not re.search(r"\* [A-Z]", str(caught.value)), "a sentence has no end"
            with pytest.raises(MCPError):
                await ear.client.get_prompt("up.greet", {"who": "x"})
    assert up.reads == []


async def test_client_is_told_that_a_single_resource_and_the_tools_tell_of_no_change(client: Client) -> None:
    """It would wait for that, instead of reading again."""
    can = client.server_capabilities
    assert can.resources and can.tools
    assert not (can.resources.subscribe or can.tools.list_changed)
    if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        everything: Json = {f"{kind}_list_changed": True for kind in ("tools", "resources", "prompts")}
        one = "portal://http_modern/note://a"
        async with client.listen(**everything, resource_subscriptions=[one]) as heard:
            assert heard.honored.resources_list_changed
            assert heard.honored.prompts_list_changed
            assert not (heard.honored.tools_list_changed or heard.honored.resource_subscriptions)


@pytest.mark.parametrize(
    ("transport", "mode", "upstream"), [("http", "legacy", "http_modern"), ("stdio", "auto", "stdio_legacy")]
)
async def test_a_change_at_an_upstream_is_told_to_clients(
    tmp_path: Path, transport: str, mode: str, upstream: str
) -> None:
    told = anyio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ResourceListChangedNotification):
            told.set()

    async with chatty_upstreams() as entries:
        upstreams = {upstream: entries[upstream]}
        options = {"message_handler": hear, "cache": None}
        async with (
            client_of(tmp_path, upstreams, transport, mode, options, server=OFFERS) as ear,
            anyio.create_task_group() as tasks,
        ):
            client = ear.client
            await ready(client)
            await client.list_resources()
            if mode == "auto":
                assert client.server_capabilities.resources.list_changed

                async def listen(*, task_status: Any) -> None:
                    async with client.listen(resources_list_changed=True) as subscription:
                        task_status.started()
                        async for _ in subscription:
                            told.set()

                await tasks.start(listen)
            assert (await ear.run(f"await {upstream}.grow()"))["status"] == "ok"
            with anyio.fail_after(DEADLINE_SECONDS):
                while not any("grown" in each.uri for each in (await client.list_resources()).resources):
                    await anyio.lowlevel.checkpoint()
                await told.wait()
            tasks.cancel_scope.cancel()
