"""scripts/links.py finds links that lead nowhere, and scripts/site makes a site that fetches nothing from others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREE = {
    "README.md": "# Title\n[a](docs/README.md) ![b](docs/c.svg) [d][d]\n<img src='docs/c.svg'>\n\n[d]: docs/a.md#t--1",
    "docs/README.md": "# Index\n[a](a.md) [b](decisions/)",
    "docs/a.md": "# A\n## `T` & 1\n## A\n<a id='own'></a>\n[a](../README.md#title) [b](#a-1) [c](#own) [d](http://x.y/z)",
    "docs/c.svg": "",
    "docs/decisions/1.md": "# One\n`[a](nothing.md)`\n\n```\n[b](nothing.md)\n```",
}
PLANTED = {
    "docs/decisions/2.md": (
        "# A\n[a](b.md)\n\n[b](#b)\n\n[c](../a.md#b)\n\n![d](d.svg)\n\n<source srcset='e.svg 2x'>\n\n[f](../../..)"
    ),
    "docs/further/unlisted.md": "# Unlisted",
}
FAULTS = [
    "docs/decisions/2.md:2: b.md: there is no such file",
    "docs/decisions/2.md:4: #b: the page has no such anchor",
    "docs/decisions/2.md:6: ../a.md#b: the page has no such anchor",
    "docs/decisions/2.md:8: d.svg: there is no such file",
    "docs/decisions/2.md:10: e.svg: there is no such file",
    "docs/decisions/2.md:12: ../../..: there is no such file",
    "docs/further/unlisted.md: it is not in docs/README.md",
]


@pytest.mark.parametrize(("planted", "faults"), [({}, []), (PLANTED, FAULTS)])
def test_what_leads_nowhere_is_found(tmp_path: Path, planted: dict[str, str], faults: list[str]) -> None:
    for name, text in {**TREE, **planted}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    command = [sys.executable, str(ROOT / "scripts/links.py"), str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.returncode) == (faults or ["4 pages, no dead link"], bool(faults))


@pytest.mark.release
def test_the_site_has_every_page_and_fetches_nothing_from_others() -> None:
    subprocess.run([str(ROOT / "scripts/site")], check=True)
    site = ROOT / "build/site"
    pages = {page.relative_to(site).with_suffix(".md").name for page in site.rglob("*.html")}
    assert {page.name for page in (ROOT / "docs").rglob("*.md")} - {"README.md"} <= pages
    for page in site.rglob("*.html"):
        fetched = re.findall(
            r"<(?:script|link|img|source|iframe)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)",
            page.read_text("utf-8"),
        )
        assert fetched and [url for url in fetched if re.match(r"(https?:)?//", url)] == [], page
    assert "quarantine" in (site / "search.json").read_text("utf-8").lower()
