"""What scripts/release writes beside the archives, and what publishes them. scripts/release itself takes minutes."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from sandbox_runtime.build_guest import PACKAGES, REQUIREMENTS
from sandbox_runtime.build_js import _SDIST
from scripts import release_files
from tests.packaging.source_tree import ROOT

REPOSITORY = "somebody/mcp-code-portal"
VERSIONS = {"CPython": "3.14.0", "SQLite": "3.51.2", "zlib": "1.3.1", "expat": "2.7.3", "libmpdec": "2.5.1"}
WORKFLOWS = [*(ROOT / ".github/workflows").glob("*.yml")]


def test_sbom_names_what_is_inside_the_components() -> None:
    root = {"bom-ref": "root", "name": "mcp-code-portal"}
    empty = {"metadata": {"component": root}, "components": [], "dependencies": [{"ref": "root"}]}
    bom = release_files.sbom(empty, VERSIONS)
    purls = {part.get("purl") for part in bom["components"]}
    packages = {f"pkg:pypi/{name.lower()}@{version}" for name, version in PACKAGES.items()}
    assert packages | {f"pkg:pypi/{_SDIST.replace('==', '@')}"} <= purls
    assert {f"pkg:generic/{name.lower()}@{version}" for name, version in VERSIONS.items()} <= purls
    named = {(part["name"], part.get("version")) for part in bom["components"]}
    assert ("componentize-py runtime", REQUIREMENTS[0].partition("==")[2]) in named
    assert {"wasi-libc", "acorn", "acorn-typescript", "htmx"} <= {name for name, _ in named}
    assert {part["bom-ref"] for part in bom["components"]} == set(bom["dependencies"][0]["dependsOn"])


def test_changelog_has_a_short_section_for_this_version() -> None:
    assert 0 < len(release_files.notes().splitlines()) <= 60
    assert release_files.notes(f"# Changelog\n\n## {release_files.VERSION}0\n\n- of another version\n") == ""


@pytest.mark.parametrize(
    ("markdown", "absolute"),
    [
        ("[docs](docs/a.md#b)", "[docs](U/blob/V/docs/a.md#b)"),
        ("![picture](docs/a.svg)", "![picture](U/raw/V/docs/a.svg)"),
        ('<img src="docs/a.svg">', '<img src="U/raw/V/docs/a.svg">'),
        ("[MCP](https://mcp.example) [below](#below)", "[MCP](https://mcp.example) [below](#below)"),
    ],
)
def test_links_of_pypis_page_lead_to_the_repository(markdown: str, absolute: str) -> None:
    expected = absolute.replace("U/", "https://u.example/").replace("/V/", f"/v{release_files.VERSION}/")
    assert release_files.absolute_links(markdown, "https://u.example") == expected


def test_server_json_fits_the_readme_that_proves_it(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    release_files.forge(tmp_path, REPOSITORY)
    server = json.loads(json.dumps(release_files.server(REPOSITORY)))
    assert f"mcp-name: {server['name']} " in (tmp_path / "README.md").read_text()
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", server["name"])
    assert server["version"] == server["packages"][0]["version"] == release_files.VERSION


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_pins_each_action_by_commit(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    used = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []


def test_each_test_that_the_map_names_is_there() -> None:
    _, _, tables = (ROOT / "docs/security-map.md").read_text().partition("\n## ")
    named = re.findall(r"`([\w/]+(?:\.py|/))`", tables)
    assert len(named) > 50
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []
