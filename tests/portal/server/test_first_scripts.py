"""Forty scripts as models first write them, on peers that answer like the real servers.

`python -m benchmarks.tokens` runs them on the real ones.
"""

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import PurePosixPath
from statistics import fmean
from typing import Final

import pytest
from mcp_types import CallToolResult

from benchmarks.first_scripts import CLASSES, FIXED, RUNS, first_scripts, repeated
from benchmarks.scene import FILES, ORDERS, WEEK, placed
from manifests.json_value import Json
from portal.base.tokens import count_tokens
from tests.portal.peers import Peer, opened, schema, structured, text, text_of, tool

ROOT: Final = PurePosixPath("/files")
STR, NUMBER, STRINGS = {"type": "string"}, {"type": "number"}, {"type": "array", "items": {"type": "string"}}
CONTENT: Final = schema("content", content=STR)
ENTITIES: Final[Json] = {
    "type": "array",
    "items": schema("name", "entityType", "observations", name=STR, entityType=STR, observations=STRINGS),
}
RELATIONS: Final[Json] = {"type": "array", "items": schema("from", "to", **{"from": STR, "to": STR})}
GRAPH: Final = schema("entities", "relations", entities=ENTITIES, relations=RELATIONS)
VALUES: Final[Json] = {"type": "array", "items": {"type": "array"}}


def served(*tools: tuple[str, dict[str, Json], dict[str, Json] | None], **acts: Json) -> Peer:
    """A peer whose tools (name, arguments, result) answer with a value, or with a function of their arguments."""

    def act(answer: Json) -> Json:
        async def called(arguments: dict[str, Json]) -> CallToolResult:
            value = answer(arguments) if callable(answer) else answer
            return value if isinstance(value, CallToolResult) else structured(value)

        return called

    shown = [tool(name, arguments, output_schema=result) for name, arguments, result in tools]
    return Peer(*shown, **{name: act(answer) for name, answer in acts.items()})


def read(arguments: Mapping[str, Json]) -> Json:
    name = str(PurePosixPath(arguments["path"]).relative_to(ROOT))
    if name in FILES:
        return {"content": FILES[name]}
    return text(f"ENOENT: no such file or directory, open '{arguments['path']}'", is_error=True)


def listed(arguments: Mapping[str, Json]) -> Json:
    files = [name for name in FILES if (ROOT / name).parent == PurePosixPath(arguments["path"])]
    return {"content": "\n".join(f"[FILE] {PurePosixPath(name).name}" for name in files)}


def rows(query: str) -> CallToolResult:
    """Rows as the real server writes them: the `repr` of a list of dicts."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table orders (id integer primary key, weekday text, item text, price real)")
        database.executemany("insert into orders (weekday, item, price) values (?, ?, ?)", ORDERS)
        found = database.execute(query)
        names = [column[0] for column in found.description]
        return text(str([dict(zip(names, row, strict=True)) for row in found]))


def peers() -> dict[str, Peer]:
    limits = {"head": NUMBER, "tail": NUMBER}
    times = {"max_count": {"type": "integer", "default": 10}, "start_timestamp": STR, "end_timestamp": STR}
    times |= {name: {"anyOf": [STR, {"type": "null"}]} for name in ("start_timestamp", "end_timestamp")}
    mode = {"enum": ["values", "formulas"], "default": "values"}
    return {
        "filesystem": served(
            ("list_directory", schema("path", path=STR), CONTENT),
            ("read_text_file", schema("path", path=STR, **limits), CONTENT),
            ("write_file", schema("path", "content", path=STR, content=STR), CONTENT),
            list_directory=listed,
            read_text_file=read,
        ),
        "memory": served(
            ("create_entities", schema("entities", entities=ENTITIES), schema(entities=ENTITIES)),
            (
                "delete_entities",
                schema("entityNames", entityNames=STRINGS),
                schema(success={"type": "boolean"}),
            ),
            ("read_graph", schema(), GRAPH),
            ("search_nodes", schema("query", query=STR), GRAPH),
            delete_entities={"success": True},
            read_graph={"entities": [], "relations": []},
        ),
        "everything": served(
            ("get-sum", schema("a", "b", a=NUMBER, b=NUMBER), None),
            **{
                "get-sum": lambda given: text(
                    f"The sum of {given['a']} and {given['b']} is {given['a'] + given['b']}."
                )
            },
        ),
        "git": served(
            ("git_log", schema("repo_path", repo_path=STR, **times), None),
            ("git_status", schema("repo_path", repo_path=STR), None),
            git_log=text("Commit history:\nCommit: 'a1b2c3'\nMessage: 'Begin'\n"),
            git_status=text("Repository status:\nOn branch main\nnothing to commit"),
        ),
        "time": served(
            ("get_current_time", schema("timezone", timezone=STR), schema(timezone=STR, datetime=STR)),
            get_current_time=lambda given: {**given, "datetime": "2026-11-28T10:00:00+01:00"},
        ),
        "sqlite": served(
            ("read_query", schema("query", query=STR), None),
            ("list_tables", schema(), None),
            read_query=lambda given: rows(given["query"]),
            list_tables=lambda given: rows("SELECT name FROM sqlite_master"),
        ),
        "excel": served(
            (
                "read_range",
                schema("path", "sheet", path=STR, sheet=STR, range=STR, mode=mode),
                schema("range", "values", range=STR, values=VALUES),
            ),
            read_range=lambda given: {"range": given["range"], "values": WEEK},
        ),
    }


def test_no_fix_is_in_the_script_that_needs_it() -> None:
    assert [each.name for each in first_scripts() if each.has_fix(each.code)] == []


@pytest.fixture(scope="module")
async def answers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, tuple[str, str]]]:
    """The class and the text of the answer to each script."""
    found = {}
    folder = tmp_path_factory.mktemp("first_scripts")
    async with opened(folder, {**peers()}, server={"observe_results": False}) as portal:
        for each in first_scripts():
            script = each.placed(lambda code: placed(code, ROOT))
            result = await portal.call("execute_code", code=script.code)
            said = text_of(result)
            found[script.name] = script.judged(said, is_error=result.is_error), said
    yield found


async def test_every_first_script_runs_right_or_is_told_the_fix(answers: dict[str, tuple[str, str]]) -> None:
    names = {kind: [name for name, (its, _) in answers.items() if its == kind] for kind in CLASSES}
    assert {kind: each for kind, each in names.items() if kind not in (RUNS, FIXED)} == {
        kind: [] for kind in CLASSES if kind not in (RUNS, FIXED)
    }
    assert (len(answers), len(names[RUNS]) >= 25, len(names[FIXED]) <= 15) == (40, True, True), names


async def test_no_answer_says_an_error_or_an_id_twice(answers: dict[str, tuple[str, str]]) -> None:
    assert {name: twice for name, (_, said) in answers.items() if (twice := repeated(said))} == {}


async def test_answers_to_first_scripts_cost_55_tokens_at_most(answers: dict[str, tuple[str, str]]) -> None:
    assert fmean(count_tokens(said) for _, said in answers.values()) <= 55
