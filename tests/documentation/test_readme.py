"""README and the docs tell limits and steps as they are."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from manifests.grants import FileGrant, NetworkGrant
from portal.calls.pipeline import WAY

ROOT = Path(__file__).parents[2]
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}


@pytest.mark.parametrize(
    ("page", "grant", "count"),
    [("files.md", FileGrant(workspace="x"), 4), ("network.md", NetworkGrant(allow=("x",)), 3)],
)
def test_every_limit_of_a_grant_is_told(page: str, grant: BaseModel, count: int) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) ?(\w*) \|", text, re.MULTILINE)
    told = {name: int(number.replace(",", "")) * UNITS[unit] for name, number, unit in rows}
    assert (told, len(told)) == (grant.model_dump(include={*told}), count)


@pytest.mark.parametrize("page", ["README.md", "docs/calls.md"])
def test_the_way_of_a_call_is_told_as_it_is(page: str) -> None:
    told = (ROOT / page).read_text("utf-8")
    shown = dict(re.findall(r"^(\w+) = \((.*)\)$", told, re.MULTILINE))
    steps = [step.__name__ for step in WAY]
    assert re.findall(r"\w+", shown["WAY"].replace("*ATTEMPT", shown["ATTEMPT"])) == steps
    assert page == "README.md" or re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == steps


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1300
