"""What scripts/release writes besides the archives. Each fact comes from one place: pyproject.toml, NOTICE,
CHANGELOG.md, or the sandbox itself.

python scripts/release_files.py version [VERSION]           the version; fails if CHANGELOG.md has no section for it
python scripts/release_files.py notes OWNER/NAME            the section of CHANGELOG.md for the version
python scripts/release_files.py forge FOLDER OWNER/NAME     tells a copy of the source where its repository is
python scripts/release_files.py server OWNER/NAME           server.json, for the MCP registry
python scripts/release_files.py sbom IN VERSIONS OUT        adds to an SBOM of packages what is inside the wheel
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]

SERVER_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MAX_DESCRIPTION = 100
"""Characters, of the registry's schema."""

VARIABLES = {
    "MCP_CODE_PORTAL_CONFIG": "Path of the manifest that lists the upstreams; the default is ./portal.yaml",
    "MCP_CODE_PORTAL_CACHE": "Folder for the compiled sandbox; the default is ~/.cache/mcp-code-portal",
}

_PART = re.compile(r"(?P<name>\S.*?)(?: (?P<version>\d[\d.]*))? \((?:in )?(?P<place>[^()]*)\)")
_PACKAGE = re.compile(r"    (?P<name>\S+) (?P<version>\d\S*) +(?P<licence>\S+) +\S.*")
_NPM = re.compile(r"npm (@?[\w./-]+) (\d[\d.]*\d)")
_PYPI = re.compile(r"PyPI's ([\w-]+) (\d[\d.]*\d)")
_CPE = {
    "CPython": "python:python",
    "SQLite": "sqlite:sqlite",
    "zlib": "zlib:zlib",
    "expat": "libexpat_project:libexpat",
    "libmpdec": "",  # no advisory has ever named it
}
"""By what names advisories know the C programs inside the sandbox."""


def version(wanted: str = VERSION) -> str:
    if wanted != VERSION:
        sys.exit(f"release: pyproject.toml has version {VERSION}, not {wanted}")
    if not notes():
        sys.exit(f"release: CHANGELOG.md has no section `## {VERSION}`")
    return VERSION


def notes(changelog: str | None = None) -> str:
    """The section of the changelog for this version, without its heading; empty if there is none."""
    text = (ROOT / "CHANGELOG.md").read_text() if changelog is None else changelog
    found = re.search(rf"^## {re.escape(VERSION)}\b[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def forge(folder: Path, repository: str) -> None:
    """Put the links of PyPI's page, and the registry's proof of ownership, into a copy of the source."""
    url = f"https://github.com/{repository}"
    links = {"Repository": url, "Changelog": f"{url}/blob/v{VERSION}/CHANGELOG.md", "Issues": f"{url}/issues"}
    links["Documentation"] = f"{url}/blob/v{VERSION}/docs/README.md"
    table = "".join(f'{name} = "{link}"\n' for name, link in links.items())
    with (folder / "pyproject.toml").open("a") as file:
        file.write(f"\n[project.urls]\n{table}")
    readme = folder / "README.md"
    owner = f"<!-- mcp-name: {server_name(repository)} -->"
    readme.write_text(f"{absolute_links(readme.read_text(), url)}\n{owner}\n")


def absolute_links(markdown: str, url: str) -> str:
    """The text with links to files of the repository that work elsewhere, as on PyPI's page."""
    pattern = re.compile(r'(!?)(\[[^\]]*\]\(|(?:src|href)=")(?![a-z]+:|#)([^)"\s]+)')

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] or link[2].startswith("src") else "blob"
        return f"{link[1]}{link[2]}{url}/{kind}/v{VERSION}/{link[3]}"

    return pattern.sub(absolute, markdown)


def server_name(repository: str) -> str:
    return f"io.github.{repository.partition('/')[0]}/{PROJECT['name']}"


def server(repository: str) -> dict[str, Any]:
    """The registry's description of this version. Raises SystemExit: the registry would refuse it."""
    if len(PROJECT["description"]) > MAX_DESCRIPTION:
        sys.exit(f"release: the registry takes {MAX_DESCRIPTION} characters of description")
    package = {
        "registryType": "pypi",
        "registryBaseUrl": "https://pypi.org",
        "identifier": PROJECT["name"],
        "version": VERSION,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "serve"}],
        "environmentVariables": [
            {"name": name, "description": description, "format": "filepath", "isRequired": False}
            for name, description in VARIABLES.items()
        ],
    }
    return {
        "$schema": SERVER_SCHEMA,
        "name": server_name(repository),
        "title": PROJECT["name"],
        "description": PROJECT["description"],
        "repository": {"url": f"https://github.com/{repository}", "source": "github"},
        "version": VERSION,
        "packages": [package],
    }


def sbom(bom: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    """The SBOM with the parts that NOTICE names; `versions` are what the sandbox says of its C programs."""
    root = bom["metadata"]["component"]
    parts = [*notice_parts((ROOT / "NOTICE").read_text(), versions), *c_programs(versions)]
    bom["components"] += parts
    (known,) = [each for each in bom["dependencies"] if each["ref"] == root["bom-ref"]]
    known["dependsOn"] = sorted({*known.get("dependsOn", ()), *(part["bom-ref"] for part in parts)})
    bom["dependencies"] += [{"ref": part["bom-ref"]} for part in parts]
    return bom


def notice_parts(notice: str, versions: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A component for each part of the wheel that is not ours, from its paragraph in NOTICE.

    Raises SystemExit: a paragraph has no heading that can be read.
    """
    for paragraph in notice.strip().split("\n\n")[2:]:
        heading, _, body = paragraph.partition("\n")
        part = _PART.fullmatch(heading)
        if part is None:
            sys.exit(f"release: NOTICE: a part needs a heading like `name 1.0 (in file)`, not {heading!r}")
        packages = [_PACKAGE.fullmatch(line) for line in body.splitlines()]
        for package in filter(None, packages):
            purl = f"pkg:pypi/{package['name'].lower()}@{package['version']}"
            licences = [{"license": {"id": package["licence"]}}]
            yield component(package["name"], package["version"], part["place"], purl=purl, licenses=licences)
        if not any(packages) and part["name"] not in versions:
            text = " ".join(body.split())
            yield component(part["name"], part["version"], part["place"], description=text, **origin(body))


def origin(body: str) -> dict[str, str]:
    if found := _NPM.search(body):
        return {"purl": f"pkg:npm/{quote(found[1], safe='/')}@{found[2]}"}
    if found := _PYPI.search(body):
        return {"purl": f"pkg:pypi/{found[1]}@{found[2]}"}
    return {}


def c_programs(versions: dict[str, str]) -> Iterator[dict[str, Any]]:
    for name, number in versions.items():
        cpe = {"cpe": f"cpe:2.3:a:{_CPE[name]}:{number}:*:*:*:*:*:*:*"} if _CPE[name] else {}
        purl = f"pkg:generic/{name.lower()}@{number}"
        yield component(name, number, "sandbox_runtime/guest.wasm", purl=purl, **cpe)


def component(name: str, number: str | None, place: str, **more: Any) -> dict[str, Any]:
    version = {"version": number} if number else {}
    ref = f"inside:{name}" + (f"@{number}" if number else "")
    where = [{"name": "mcp-code-portal:inside", "value": place}]
    return {"type": "library", "bom-ref": ref, "name": name, **version, **more, "properties": where}


def validate(bom: str) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    wrong = JsonStrictValidator(SchemaVersion.from_version(json.loads(bom)["specVersion"])).validate_str(bom)
    if wrong:
        sys.exit(f"release: the SBOM is not valid: {wrong}")


def main(command: str, *arguments: str) -> None:
    match command, arguments:
        case "version", _:
            print(version(*arguments))
        case "notes", (repository,):
            print(absolute_links(notes(), f"https://github.com/{repository}"))
        case "forge", (folder, repository):
            forge(Path(folder), repository)
        case "server", (repository,):
            print(json.dumps(server(repository), indent=2))
        case "sbom", (found, versions, target):
            seen = json.loads(Path(versions).read_text())["versions"]
            text = json.dumps(sbom(json.loads(Path(found).read_text()), seen), indent=2) + "\n"
            validate(text)
            Path(target).write_text(text)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
