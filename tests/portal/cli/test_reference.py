"""docs/reference is complete: scripts/reference writes commands and keys, and each error code has a row."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs/reference"
SOURCES = ("portal", "upstreams", "sandbox_runtime", "manifests")
CODE = re.compile(
    r"""(?:\bcode"?(?:: \w+)?(?:, \w+)* ?[=:] ?|(?:Error|_refused)\(\s*(?:\d+, |f?"[^"\n]*", )?)"([a-z_]+)\""""
)
"""A code where it is assigned, passed or raised, as nine in ten are."""


@pytest.mark.parametrize("name", ["commands", "keys"])
def test_page_is_what_the_program_writes(name: str) -> None:
    text = "\n".join(runpy.run_path(str(ROOT / "scripts/reference"))[name]()).rstrip() + "\n"
    assert (PAGES / f"{name}.md").read_text("utf-8") == text, "run scripts/reference"


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\|.*\w.*\|$", (PAGES / "errors.md").read_text("utf-8"), re.MULTILINE)
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    files += (ROOT / "sandbox_runtime/guest_js").glob("*.js")
    source = "\n".join(path.read_text("utf-8") for path in files)
    assert {*CODE.findall(source)} - {*rows} == set(), "codes without a row in docs/reference/errors.md"
    assert [each for each in rows if not re.search(rf'"{each}"|"{each.partition("_")[0]}_{{', source)] == []
    assert len(rows) == len({*rows}), "a code has two rows"
