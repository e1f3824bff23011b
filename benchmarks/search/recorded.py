"""Recorded tools and queries with known answers, from ../shared/data, which is not part of this repository."""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import RESULTS
from portal.base.plain_text import says_deprecated

Json = Any
Answer = tuple[str, str]
"""An upstream and the name of one of its tools."""

DATA = RESULTS.parents[2] / "shared" / "data"
RELIABLE = ("azure", "stabletoolbench", "bfcl_live", "toollinkos", "metatool", "livemcp_task")
"""The sets whose labels are reliable; the macro score is the mean over them."""

_FILES = {"mcp": "registries.jsonl.gz"}


@dataclass(frozen=True)
class RecordedParameter:
    name: str
    wire_name: str
    doc: str


@dataclass(frozen=True)
class RecordedFunction:
    namespace: str
    name: str
    upstream: str
    tool: str
    description: str
    parameters: tuple[RecordedParameter, ...]

    @property
    def is_deprecated(self) -> bool:
        return says_deprecated(self.description)

    @property
    def answer(self) -> Answer:
        return self.upstream, self.tool


@dataclass(frozen=True)
class Asked:
    """A query; each of its needs is met by any of some functions. Those of upstream `hidden` are not searched."""

    set: str
    corpus: str
    query: str
    needs: tuple[frozenset[Answer], ...]
    hidden: str | None = None


def read_queries() -> Iterator[Asked]:
    for row in read_rows(DATA / "queries.jsonl.gz"):
        needs = tuple(frozenset((server, tool) for server, tool in need) for need in row["relevant"])
        yield Asked(row["set"], row["corpus"], row["query"], needs)


def read_functions(corpus: str) -> Iterator[RecordedFunction]:
    for row in read_rows(DATA / _FILES.get(corpus, f"corpus_{corpus}.jsonl.gz")):
        for tool in row["tools"]:
            yield RecordedFunction(
                namespace=_identifier(row["server"]),
                name=_identifier(tool["name"]),
                upstream=row["server"],
                tool=tool["name"],
                description=tool.get("description") or "",
                parameters=tuple(_read_parameters(tool.get("inputSchema"))),
            )


def read_rows(path: Path) -> Iterator[Json]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _read_parameters(schema: Json) -> Iterator[RecordedParameter]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, value in properties.items() if isinstance(properties, dict) else ():
        doc = value.get("description") if isinstance(value, dict) else None
        yield RecordedParameter(_identifier(name), name, doc if isinstance(doc, str) else "")


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text)
