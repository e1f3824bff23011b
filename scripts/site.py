"""What scripts/site runs: copies README and all that it leads to into build/pages, and has Zensical make a site of it.

The order of pages is that of the links in docs/README.md, under its headings. Whatever a page links to comes along:
pages, files, and all files of a folder. The copies have the folders of the repository, so links stay as they are.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from links import INDEX, ROOT, Page, read, target_of

PAGES, SITE, SETTINGS = ROOT / "build/pages", ROOT / "build/site", ROOT / "build/site.toml"
START = ("README.md", INDEX)
SETTINGS_TEXT = """\
[project]
site_name = "mcp-code-portal"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false  # the HTML of a raw <img> stays right, and the site can be read from a disk
nav = NAVIGATION

[project.theme]
font = false  # Nothing is fetched from others at reading time. Hence no repo_url either, whose stars are fetched.
features = [
  "navigation.sections", "navigation.indexes", "navigation.footer", "navigation.top", "content.code.copy",
  "search.highlight",
]
palette = [
  {media = "(prefers-color-scheme: light)", scheme = "default", toggle = {icon = "lucide/sun", name = "Dark"}},
  {media = "(prefers-color-scheme: dark)", scheme = "slate", toggle = {icon = "lucide/moon", name = "Light"}},
]

[project.markdown_extensions.attr_list]
[project.markdown_extensions.md_in_html]
[project.markdown_extensions.toc]
permalink = true
slugify = {object = "pymdownx.slugs.slugify", kwds = {case = "lower"}}  # as a forge does
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.magiclink]
"""


def main() -> int:
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    pages: dict[Path, Page] = {}
    for name in START:
        copy(ROOT / name, pages)
    SETTINGS.write_text(SETTINGS_TEXT.replace("NAVIGATION", toml(navigation(pages))), "utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", SETTINGS]
    return subprocess.run(command, check=False).returncode


def copy(path: Path, pages: dict[Path, Page]) -> None:
    """Copy a page, a file, or a folder, and whatever a page links to."""
    target = PAGES / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    if (path / "README.md").exists():
        copy(path / "README.md", pages)
    elif path.is_dir():
        files = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
        rows = [f"- [{title_of(each)}]({each.name})" for each in files]
        target.mkdir(exist_ok=True)
        (target / "README.md").write_text("\n".join([f"# {path.name.capitalize()}", "", *rows, ""]), "utf-8")
        for each in files:
            copy(each, pages)
    elif path.suffix != ".md":
        shutil.copy(path, target)
    elif path not in pages:
        pages[path] = read(path)
        target.write_text(text_of(path, pages[path]), "utf-8")
        for link in pages[path].links:
            if found := target_of(path, link):
                copy(found[0], pages)


def text_of(path: Path, page: Page) -> str:
    # Zensical takes a fence with two words, such as "python redact", for text.
    text = re.sub(r"(?m)^(```\w+) .*$", r"\1", path.read_text("utf-8"))
    for link in page.links:
        if (found := target_of(path, link)) and found[0].is_dir():
            text = text.replace(f"]({link.target})", f"]({link.target.rstrip('/')}/README.md)")
    return text


def title_of(path: Path) -> str:
    return read(path).title if path.suffix == ".md" else path.name


def navigation(pages: dict[Path, Page]) -> list[object]:
    """README and the index, then the links of the index under their headings, as Zensical has its `nav`."""
    nav: list[object] = [{"Home": START[0]}, {"All pages": START[1]}]
    sections: dict[str, list[object]] = {"": nav}
    seen = {ROOT / name for name in START}
    for link in pages[ROOT / INDEX].links:
        path, _ = target_of(ROOT / INDEX, link) or (ROOT / INDEX, "")
        if path in seen:
            continue
        seen.add(path)
        if link.section not in sections:
            nav.append({link.section: sections.setdefault(link.section, [])})
        name = str(path.relative_to(ROOT))
        if path.is_dir():
            laid = sorted((PAGES / name).glob("*.md"), key=lambda each: (each.name != "README.md", each))
            sections[link.section].append({title_of(laid[0]): [f"{name}/{each.name}" for each in laid]})
        else:
            sections[link.section].append(name)
    return nav


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(name)} = {toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
