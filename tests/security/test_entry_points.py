"""Every way that leads to an upstream, times every rule that refuses a tool: none reaches it, and none shows what is
hidden. The harmless twin of each: the same way leads to the tool that is granted. For resources and prompts see
tests/portal/calls/test_resources.py.
"""

import ast
import itertools
import re
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

import portal
from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.base.errors import ASK_OPERATOR
from portal.cli import explain, library, run
from portal.cli.terminal import Terminal
from tests.portal.app.test_profiles import bearing, served
from tests.portal.peers import Opened, Peer, opened, schema, tool
from tests.portal.pinning import accept
from tests.portal.server.test_callers import Visitor, visitor
from tests.security.hostile import RAW_HOST

pytestmark = pytest.mark.anyio

TEXT: Json = {"type": "string"}


@dataclass(frozen=True)
class Rule:
    """A manifest that refuses `up.wipe` and grants `up.read`; `hides` says whether nothing may show it."""

    hides: bool
    capabilities: Json
    own: Json = None
    profile: Json = None
    is_new: bool = False
    """Whether there is a lockfile, and the tool is none of those that were accepted."""


def tools(**rules: Json) -> Json:
    return {"tools": rules}


RULES = {
    "denied by name": Rule(True, tools(deny=["up.wipe"])),
    "denied for what it declares": Rule(True, tools(deny=[{"annotation": "open_world"}])),
    "denied by its upstream": Rule(True, {}, own={"deny": ["wipe"]}),
    "not allowed": Rule(True, tools(allow=["up.read"])),
    "not allowed by its upstream": Rule(True, {}, own={"allow": ["read"]}),
    "denied by the profile": Rule(True, {}, profile=tools(deny=["up.wipe"])),
    "not accepted": Rule(True, tools(allow=["*", "up.wipe"]), is_new=True),
    "declares itself destructive": Rule(False, {}),
    "destructive to the profile": Rule(
        False, tools(destructive="allow"), profile=tools(destructive="refuse")
    ),
    "arguments that never fit": Rule(
        False, tools(allow=["*", {"tool": "up.wipe", "where": {"path": {"equals": "never"}}}])
    ),
    "used up": Rule(False, tools(allow=["*", "up.wipe"], budgets=[{"tool": "up.wipe", "calls": 0}])),
}

SCRIPTS = {
    "a call": "await up.wipe(path='x')",
    "an import": "from tools.up import wipe\nawait wipe(path='x')",
    "a name that is made up": "await getattr(up, 'wi' + 'pe')(path='x')",
    "gathered": "import asyncio\nawait asyncio.gather(*(up.wipe(path='x') for _ in range(5)))",
    "a task": "import asyncio\nawait asyncio.create_task(up.wipe(path='x'))",
    "caught": "try:\n    await up.wipe(path='x')\nexcept ToolError:\n    pass",
    "a call that was another": "call = up.read(path='x')\ncall._function = 'up.wipe'\nawait call",
    "the host itself": RAW_HOST + 'host.exchange(\'1 up.wipe {"path": "x"}\', 2000)\n1 / 0',
    "text that is run": "exec('import asyncio')\nawait eval('up.wipe(path=\"x\")')",
}

LISTINGS = ["sorted(dir(up))", "list(up.__all__)"]


def peer() -> Peer:
    declared = {"destructiveHint": True, "openWorldHint": True}
    path, reads = schema("path", path=TEXT), {"readOnlyHint": True}
    return Peer(
        tool("read", path, annotations=reads, description="Read everything."),
        tool("wipe", path, annotations=declared, description="Erase everything."),
    )


@asynccontextmanager
async def portal_of(folder: Path, up: Peer, rule: Rule, check: str) -> AsyncIterator[Opened]:
    """A portal under the rule. What refuses by itself is not in the way of what is tested."""
    sections: Json = {"capabilities": rule.capabilities, "server": {"check": check, "token": "whole-token"}}
    if rule.profile is not None:
        sections["profiles"] = {"narrow": rule.profile}
        sections["server"]["tokens"] = [{"token": "narrow-token", "profile": "narrow"}]
    profile = None if rule.profile is None else "narrow"
    sections["bound"] = [] if profile is None else [profile]
    if rule.is_new:
        await accept(folder, {"up": Peer(up.tools[0])})
    async with opened(folder, {"up": up}, own=rule.own, profile=profile, **sections) as portal_:
        yield portal_


class Under(NamedTuple):
    """A portal under a rule. Tests change nothing about it, and share it."""

    name: str
    rule: Rule
    up: Peer
    portal_: Opened
    folder: Path


@pytest.fixture(scope="module")
async def under(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Under]:
    name, check = request.param
    rule, up, folder = RULES[name], peer(), tmp_path_factory.mktemp("under")
    async with portal_of(folder, up, rule, check) as portal_:
        yield Under(name, rule, up, portal_, folder)


def under_rules(*names: str, checks: Sequence[str]) -> pytest.MarkDecorator:
    cases = list(itertools.product(names, checks))
    return pytest.mark.parametrize("under", cases, indirect=True, ids=", ".join)


@asynccontextmanager
async def clients(portal_: Opened, rule: Rule) -> AsyncIterator[dict[str, Opened | Visitor]]:
    """One over each transport, in each era."""
    token = bearing("whole-token" if rule.profile is None else "narrow-token")
    async with (
        served(portal_) as url,
        visitor(url, "legacy", token) as legacy,
        visitor(url, "auto", token) as modern,
    ):
        yield {"in this process": portal_, "over HTTP, legacy": legacy, "over HTTP, modern": modern}


def reached(up: Peer) -> set[str]:
    return {name for name, _ in up.calls}


@under_rules(*RULES, checks=["off"])
async def test_no_script_reaches_it(under: Under) -> None:
    """Rules hold for clients of all transports alike: one rule is tried with each."""
    name, rule, up, portal_, _ = under
    async with clients(portal_, rule) if name == "denied by name" else nullcontext({"": portal_}) as callers:
        for transport, client in callers.items():
            for way, script in SCRIPTS.items():
                up.calls.clear()
                await client.run(script)
                assert "wipe" not in reached(up), (transport, way)
                up.calls.clear()
                await client.run(script.replace("wipe", "read").replace("'wi' + 'pe'", "'re' + 'ad'"))
                assert reached(up) == {"read"}, (transport, way)
            session = (await client.run("kept = up", session="new"))["session"]
            for way in ("a call", "gathered"):
                await client.run(SCRIPTS[way].replace("up.", "kept."), session=session)
        assert "wipe" not in reached(up)


@under_rules(*RULES, checks=["strict", "off"])
async def test_each_refusal_names_its_rule_and_no_recipe(under: Under) -> None:
    name, rule, _, portal_, _ = under
    answer = await portal_.run(SCRIPTS["a call"])
    error = answer["error"]
    is_strict = portal_.portal.manifest.portal.server.check == "strict"
    is_found_before = is_strict and (rule.hides or "destructive" in name)
    assert answer["status"] == ("refused" if is_found_before else "error")
    assert [row["state"] for row in answer["calls"]] == ([] if is_found_before else ["refused"])
    assert error["code"] in ("not_granted", "quarantined", "tool_budget", "rate_limited")
    assert re.search(r"\.tools\.(allow|deny|budgets)|portal\.lock", error["message"])
    assert ASK_OPERATOR in error["hint"]
    assert not re.search(r"portal\.yaml|mcp-code-portal|\.allow at|: \[", error["hint"])


@under_rules(*RULES, checks=["strict"])
async def test_nothing_shows_what_is_hidden_and_what_is_shown_is_marked(under: Under) -> None:
    name, rule, _, portal_, _ = under
    queries = ("wipe", "up.wipe", "erase everything", "read")
    names = {row["name"] for query in queries for row in (await portal_.search(query))["functions"]}
    texts = [await portal_.search_text(each, detail="full") for each in ("erase everything", "everything")]
    listed = [str(await portal_.result_of(listing)) for listing in LISTINGS]
    found = await portal_.result_of("import portal\nawait portal.search('erase everything')")
    in_scripts = {row["name"] for row in found["functions"]}
    described = (await portal_.run("import portal\nawait portal.describe('up.wipe')"))["result"]
    stubs = portal_.portal.catalog.snapshot.library.module("up")
    assert "up.read" in names and all("read" in each for each in listed) and "read" in stubs
    is_shown = not rule.hides
    assert ("up.wipe" in names) is ("up.wipe" in in_scripts) is (described is not None) is is_shown
    for text in (*texts, stubs):
        assert ("Erase everything" in text) is is_shown
        assert ("wipe(" in text) is is_shown
    if rule.hides:
        assert not [each for each in listed if "wipe" in each]
    if "destructive" in name:
        assert all("(not granted)" in text for text in (*texts, stubs))


@under_rules("denied by name", "denied by the profile", "declares itself destructive", checks=["off"])
async def test_no_command_reaches_it(under: Under, capsys: pytest.CaptureFixture[str]) -> None:
    _, rule, up, _, folder = under
    profile = None if rule.profile is None else "narrow"
    for name in ("wipe", "read"):
        (folder / f"{name}.py").write_text(SCRIPTS["a call"].replace("wipe", name))
    manifest = load_manifest(folder / "portal.yaml", {})
    up.calls.clear()

    async def output_of(command: Callable[..., Awaitable[int]], **options: Json) -> str:
        capsys.readouterr()
        await command(manifest, Namespace(json=False, profile=profile, kernel=None, **options), Terminal())
        return capsys.readouterr().out

    await output_of(run.command, script=folder / "wipe.py", timeout=None)
    assert reached(up) == set()
    await output_of(run.command, script=folder / "read.py", timeout=None)
    assert reached(up) == {"read"}
    found = await output_of(library.search, query="everything", full=True, upstream=None, limit=5)
    for shown in (found, await output_of(library.stubs, namespace="up", out=None)):
        assert ("wipe(" in shown) is not rule.hides
        assert ("(not granted)" in shown) is not rule.hides
        assert "read(" in shown
    assert "refused" in await output_of(explain.command, name="up.wipe", arguments=None)
    assert "granted" in await output_of(explain.command, name="up.read", arguments=None)


def test_upstreams_are_called_from_one_place_with_a_permit_from_one_place(no_collections: None) -> None:
    """A new way to an upstream has to be added above, too."""
    calls, permits = [], []
    for file in sorted(Path(portal.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.endswith((".fetch", "upstream.call", ".ask", ".offered")):
                calls.append((file.name, called))
            if called == "Permit":
                permits.append(file.name)
    assert sorted(calls) == [
        ("broker.py", "self.fetcher.fetch"),
        ("broker.py", "upstream.call"),
        ("resources.py", "upstream.ask"),
        ("resources.py", "upstream.offered"),
        ("webhooks.py", "Fetcher(network).fetch"),  # to the operator's own URLs
    ]
    assert permits == ["authority.py"]
