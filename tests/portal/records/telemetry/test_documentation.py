"""docs/telemetry.md names every span, attribute and number that a collector gets, and nothing else."""

import re
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from manifests.json_value import Json
from tests.portal.peers import Peer, opened, text, tool
from tests.portal.records.telemetry.collector import Collector, attributes_of, collecting

DOCUMENT = (Path(__file__).parents[4] / "docs/telemetry.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = DOCUMENT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`(.+?)`", cell))


def spans_of(collector: Collector) -> dict[tuple[str, str], set[str]]:
    """The attributes of the spans by the names that the document gives them, and by their kinds."""
    named: dict[tuple[str, str], set[str]] = {}
    for span in collector.spans:
        kind = Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
        name = re.sub(r"^execute_tool .*", "execute_tool {function}", span.name)
        name = name if kind == "INTERNAL" else "{mcp.method.name} {tool}"
        named.setdefault((f"`{name}`", kind), set()).update(attributes_of(span))
    return named


async def fail(arguments: dict[str, Json]) -> Json:
    if arguments:
        raise MCPError(-32603, "broken")
    return text("failed", is_error=True)


async def test_the_tables_name_what_a_collector_gets(tmp_path: Path) -> None:
    peer = Peer(tool("echo"), tool("fail"), tool("secret"), fail=fail)
    capabilities: Json = {"tools": {"allow": ["*"], "deny": ["store.secret"]}}
    async with collecting() as collector:
        telemetry = {"otlp": collector.url, "arguments": True}
        sections: dict[str, Json] = {"telemetry": telemetry, "capabilities": capabilities}
        on: Json = {"kernels": {"javascript": True}}
        async with opened(tmp_path, {"store": peer}, server=on, **sections) as portal:
            await portal.run("await store.echo(a=1)")
            await portal.run("1", kernel="javascript")
            await portal.run("await store.fail()")
            await portal.run("await store.fail(a=1)")
            await portal.run("await store.nothing()")
            await portal.run("f = 'secret'\nawait getattr(store, f)()")
            with pytest.raises(MCPError):
                await portal.client.call_tool("nothing", {})
    assert spans_of(collector) == {(name, kind): quoted(cell) for name, kind, cell in rows_of("Spans")}
    assert collector.numbers == {
        name.strip("`"): (re.sub("counter|total", "sum", kind), unit, words, quoted(cell))
        for name, kind, unit, cell, words in rows_of("Numbers")
    }


def test_every_attribute_is_explained() -> None:
    cells = [row[2] for row in rows_of("Spans")] + [row[3] for row in rows_of("Numbers")]
    assert {row[0] for row in rows_of("Attributes")} == {f"`{name}`" for name in quoted(" ".join(cells))}
