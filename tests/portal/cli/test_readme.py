"""The examples in README and the docs work as printed."""

import json
import re
from pathlib import Path

import pytest
from mcp_types import CallToolResult
from pydantic import BaseModel

from manifests.grants import FileGrant, Limits, NetworkGrant
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.portal_manifest import PortalManifest, RunsSettings
from portal.calls.pipeline import WAY
from portal.cli.parser import parse_arguments
from tests.portal.peers import Act, Peer, opened, schema, structured, text, tool

ROOT = Path(__file__).parents[3]
README, CLIENTS, MANIFEST, JAVASCRIPT = (
    (ROOT / page).read_text("utf-8")
    for page in ("README.md", "docs/clients.md", "docs/manifest.md", "docs/javascript.md")
)
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def snippets(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def answering(value: Json) -> Act:
    async def act(arguments: dict[str, Json]) -> CallToolResult:
        return structured(value)

    return act


def tickets() -> Peer:
    words, number = {"type": "string"}, {"type": "integer"}
    rows = schema("result", result={"type": "array", "items": {"type": "object"}})
    asked = schema(state=words, label=words, limit=number)
    issues = [{"id": n, "customer_id": n, "title": f"issue {n}"} for n in range(3)]

    async def refusal(arguments: dict[str, Json]) -> CallToolResult:
        return text("there is no issue 7", is_error=True)

    return Peer(
        tool("list_issues", asked, output_schema={**rows, "title": "Issues"}),
        tool("get_issue", schema("id", id=number)),
        tool("add_label", schema("id", "label", id=number, label=words)),
        list_issues=answering({"result": issues}),
        get_issue=answering({"id": 1, "assignee": "somebody"}),
        add_label=refusal,
    )


def loaded(folder: Path, text: str, **environ: str) -> PortalManifest:
    (folder / "portal.yaml").write_text(text)
    return load_manifest(folder / "portal.yaml", environ).portal


def test_the_manifests_are_ones(tmp_path: Path) -> None:
    manifest, company = snippets("yaml")
    assert loaded(tmp_path, manifest).upstreams.keys() == {"git"}
    whole = loaded(tmp_path, re.sub(r"(?m)^  # ", "  ", manifest), TICKETS_TOKEN="x")
    assert whole.upstreams.keys() == {"git", "tickets"}
    whole = loaded(tmp_path, company, PORTAL_KEY="x" * 16)
    assert whole.server.auth and whole.tenants and whole.runs.is_shared and whole.telemetry


def test_the_sections_of_the_page_about_the_manifest_are_ones(tmp_path: Path) -> None:
    grants, section = snippets("yaml", MANIFEST)
    capabilities = loaded(tmp_path, grants, REPORT_KEY="x").capabilities
    assert capabilities.environment["REPORT_KEY"] == "x"
    assert capabilities.files is not None and capabilities.files.mode == "write"
    assert capabilities.network is not None and "api.example.com" in capabilities.network.allow
    runs = loaded(tmp_path, section, RUNS_KEY="k" * 16, HOOK_SECRET="s" * 16).runs
    assert runs.public_url == "https://portal.example"
    assert runs.webhooks[0].events == ("run.waiting", "run.error")
    assert [name for name in RunsSettings.model_fields if f"| `{name}` |" not in MANIFEST] == []


@pytest.mark.parametrize(
    ("page", "grant", "count"),
    [("files.md", FileGrant(workspace="x"), 4), ("network.md", NetworkGrant(allow=("x",)), 3)],
)
def test_every_limit_of_a_grant_is_told(page: str, grant: BaseModel, count: int) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) ?(\w*) \|", text, re.MULTILINE)
    told = {name: int(number.replace(",", "")) * UNITS[unit] for name, number, unit in rows}
    assert (told, len(told)) == (grant.model_dump(include={*told}), count)


async def test_the_scripts_run(tmp_path: Path) -> None:
    customer = answering({"name": "somebody", "plan": "enterprise"})
    crm = Peer(tool("get_customer", schema("id", id={"type": "integer"})), get_customer=customer)
    upstreams, server = {"tickets": tickets(), "crm": crm}, {"kernels": {"javascript": True}}
    async with opened(tmp_path, upstreams, server=server) as portal:
        for script in snippets("python"):
            answer = await portal.run(script)
            assert (answer["status"], answer["notices"]) == ("ok", []), answer
            assert answer["result"]
        for script in snippets("typescript") + snippets("typescript", JAVASCRIPT):
            answer = await portal.run(script, kernel="javascript")
            assert (answer["status"], answer["notices"]) == ("ok", []), answer
            assert answer["result"] == [["somebody", 3]]


def test_every_client_starts_a_command_that_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for entry in map(json.loads, snippets("json") + snippets("json", CLIENTS)):
        (server,) = entry.get("mcpServers", entry.get("servers")).values()
        assert server["command"] == "mcp-code-portal"
        with pytest.raises(SystemExit) as ended:
            parse_arguments([*server["args"], "--help"])
        assert ended.value.code == 0


def test_every_limit_is_told_with_its_default() -> None:
    _, _, told = MANIFEST.partition("| `capabilities.limits` |")
    rows = re.findall(r"^\| `(\w+)` \| ([\d]+) ?(\w*) \|", told.partition("\n\n")[0], re.MULTILINE)
    assert {name: int(number) * UNITS[unit] for name, number, unit in rows} == Limits().model_dump()


@pytest.mark.parametrize("page", ["README.md", "docs/calls.md"])
def test_the_way_of_a_call_is_told_as_it_is(page: str) -> None:
    told = (ROOT / page).read_text("utf-8")
    shown = dict(re.findall(r"^(\w+) = \((.*)\)$", told, re.MULTILINE))
    steps = [step.__name__ for step in WAY]
    assert re.findall(r"\w+", shown["WAY"].replace("*ATTEMPT", shown["ATTEMPT"])) == steps
    assert page == "README.md" or re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == steps


def test_readme_is_short() -> None:
    assert len(README.split()) <= 1400


def test_every_page_is_in_the_index_and_every_link_leads_somewhere() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in names if f"]({name})" not in index} == set()
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\(([\w./-]+)\)", page.read_text("utf-8"))
    ]
    assert [str(link) for page, link in links if not (page.parent / link).exists()] == []
