"""docs/telemetry.md names every span, attribute and number, and nothing else."""

import re
from pathlib import Path

from portal.telemetry.instruments import (
    CALL,
    CHECK,
    INSTRUMENTS,
    OPERATIONS,
    REQUEST,
    SCRIPT_RUN,
    UPSTREAM_REQUEST,
)

TEXT = (Path(__file__).parents[3] / "docs/telemetry.md").read_text(encoding="utf-8")

NAMES = {
    REQUEST: "`{mcp.method.name} {tool}`",
    SCRIPT_RUN: "`run script`",
    CHECK: "`check script`",
    CALL: "`execute_tool {function}`",
    UPSTREAM_REQUEST: "`{mcp.method.name} {tool}`",
}


def quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def span_rows() -> list[str]:
    return [f"| {NAMES[each]} | {each.kind.name} | {quoted(each.attributes)} |" for each in OPERATIONS]


def number_rows() -> list[str]:
    return [
        f"| `{each.name}` | {each.kind} | {each.unit} | {quoted(each.attributes)} | {each.description} |"
        for each in INSTRUMENTS
    ]


def rows_of(heading: str) -> list[str]:
    """The rows of the first table under a heading, without its head."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:]


def test_the_table_of_spans_is_that_of_the_code() -> None:
    assert rows_of("Spans") == span_rows()


def test_the_table_of_numbers_is_that_of_the_code() -> None:
    assert rows_of("Numbers") == number_rows()


def test_every_attribute_is_explained() -> None:
    explained = {row.split("|")[1].strip(" `") for row in rows_of("Attributes")}
    spans = {name for each in OPERATIONS for name in each.attributes}
    assert explained == spans | {name for each in INSTRUMENTS for name in each.attributes}
