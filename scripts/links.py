"""Finds relative links and anchors of the Markdown files that lead nowhere, and pages of docs/ that no reader finds.

    .venv/bin/python scripts/links.py [FOLDER]

The rules are those of a forge, where the files are read: a link is relative to its file, and the anchor of a heading is
made as GitHub makes it. No server is asked, so links to other sites are not checked.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
INDEX = "docs/README.md"
"""The list of all pages under docs/. Its order is also that of the site: scripts/site."""
ATTRIBUTE = re.compile(r"""\b(href|src|srcset|id|name)=["']([^"']+)["']""")


@dataclass(frozen=True)
class Link:
    line: int
    target: str
    section: str
    """The heading of the second level above the link."""


@dataclass(frozen=True)
class Page:
    title: str
    links: tuple[Link, ...]
    anchors: frozenset[str]


def read(path: Path) -> Page:
    title, section, links, anchors = "", "", list[Link](), Counter[str]()
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    line = 0
    for before, token in zip([Token("", "", 0), *tokens], tokens, strict=False):
        line = token.map[0] + 1 if token.map else line
        for name, value in attributes_of(token):
            if name in ("id", "name"):
                anchors[value] += 1
            else:
                links.append(Link(line, value.split()[0], section))
        if before.type == "heading_open":
            words = "".join(
                each.content for each in token.children or () if each.type in ("text", "code_inline")
            )
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            anchors[f"{anchor}-{anchors[anchor]}"] += 1  # the second one of the same name is `name-1`
            anchors[anchor] += 1
            title = title or words
            section = words if before.tag == "h2" else section
    return Page(title, tuple(links), frozenset(anchors))


def attributes_of(token: Token) -> Iterator[tuple[str, str]]:
    """The links and anchors of a block, in Markdown and in HTML."""
    for each in (token, *(token.children or ())):
        if each.type in ("html_block", "html_inline"):
            yield from ATTRIBUTE.findall(each.content)
        elif each.type in ("link_open", "image"):
            yield "href", str(each.attrs.get("href", each.attrs.get("src")))


def target_of(page: Path, link: Link) -> tuple[Path, str] | None:
    """The file or folder of a relative link, and its anchor."""
    if re.match(r"[a-z][a-z+.-]*:|//", link.target):
        return None
    place, _, anchor = link.target.partition("#")
    return (page.parent / unquote(place)).resolve() if place else page, anchor


def main() -> int:
    root = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    pages = {root / name: read(root / name) for name in sorted({*names}) if (root / name).exists()}
    faults, listed = [], {root / INDEX}
    for path, page in pages.items():
        for link in page.links:
            if (found := target_of(path, link)) is None:
                continue
            target, anchor = found
            if path == root / INDEX:
                listed |= {target, *target.glob("*.md")}
            place = f"{path.relative_to(root)}:{link.line}: {link.target}"
            if not (target.is_relative_to(root) and target.exists()):
                faults.append(f"{place}: there is no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                faults.append(f"{place}: the page has no such anchor")
    unlisted = [path for path in pages if path.is_relative_to(root / "docs") and path not in listed]
    faults += [f"{path.relative_to(root)}: it is not in {INDEX}" for path in unlisted]
    print("\n".join(faults) or f"{len(pages)} pages, no dead link")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
