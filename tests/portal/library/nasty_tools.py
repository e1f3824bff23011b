"""Tools that no sane server lists, and some that real ones do. Each must compile, fast, to something valid."""

from collections.abc import Iterator

from manifests.json_value import Json
from tests.portal.library.sample_tools import tool
from upstreams.recorded_tool import RecordedTool

HOSTILE_TEXT = (
    'Ends """ here\\\n\nimport os; os.system("x")  # type: ignore\r\u202e\u2066\u200b\x00\x1b[31m'
    '\u2028"""\nasync def evil(): ...\nand ends in a quote"'
)


def nasty_tools() -> list[RecordedTool]:
    return [
        tool(name, input_schema, output_schema, HOSTILE_TEXT)
        for name, input_schema, output_schema in [*_broken(), *_hostile(), *_recursive(), *_huge()]
    ]


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def _broken() -> Iterator[tuple[str, Json, Json]]:
    yield "empty", {}, {}
    yield "true", True, True
    yield "false", False, False
    yield "no_schema", "string", 7
    yield "array_root", {"type": "array", "items": {"type": "string"}}, {"type": "array"}
    yield "unknown_type", _object(a={"type": "invalid"}, b={"type": {"2": "x"}}, c={"type": []}), None
    yield "properties_list", {"type": "object", "properties": ["a", "b"]}, {"properties": 3}
    yield "property_no_schema", _object(a="string", b=None, c=3, d=["x"]), None
    yield "required_no_list", {**_object(a={}), "required": True}, None
    yield "required_unknown", {**_object(a={}), "required": ["b", "class"]}, None
    yield "enum_empty", _object(a={"enum": []}, b={"enum": "x"}, c={"type": "string", "enum": [1, 2]}), None
    yield "bounds", _object(a={"minimum": "1", "maxLength": -1, "multipleOf": 0, "minimumx": 1}), None
    yield "combiners", _object(a={"anyOf": {}}, b={"oneOf": []}, c={"allOf": [1, "x", None]}), None
    yield (
        "references",
        _object(a={"$ref": "#/nowhere"}, b={"$ref": "http://127.0.0.1:9/x"}, c={"$ref": 3}),
        None,
    )
    yield "items", _object(a={"items": 3}, b={"items": [3, {"type": "string"}]}, c={"prefixItems": "x"}), None
    yield "draft_3", _object(a={"type": "string", "required": True, "divisibleBy": 3}), None


def _hostile() -> Iterator[tuple[str, Json, Json]]:
    text = HOSTILE_TEXT
    yield text, _object(**{text: {"description": text, "title": text}}), _object(**{text: {"title": text}})
    yield "__class__", _object(**{"__init__": {}, "self": {}, "class": {}, "from": {}, "from_": {}}), None
    yield "values", _object(a={"enum": [text, "\ud800", "\u202e", "'", '"', "\\"]}, b={"const": text}), None
    yield (
        "defaults",
        _object(a={"default": text}, b={"type": "string", "default": '"'}, c={"default": 1e300}),
        None,
    )
    yield "patterns", _object(a={"type": "string", "pattern": "(a+)+$"}), None
    yield (
        "definitions",
        _object(a={"$ref": f"#/$defs/{text}"}),
        {"$ref": "#/$defs/x y", "$defs": {"x y": _object(a={})}},
    )
    for word in ("list", "dict", "str", "int", "float", "bool", "Any", "Literal", "TypedDict", "NotRequired"):
        nested = {"title": word, **_object(**{word: {"type": "array", "items": {"enum": ["a"]}}, "z": {}})}
        yield word, _object(**{word: nested}), nested
    yield (
        "None_title",
        _object(a={"title": "None", **_object(b={})}),
        {"title": "Issue", **_object(Issue={"$ref": "#"})},
    )
    yield (
        "open",
        {**_object(a={"type": "string"}), "additionalProperties": True},
        {
            **_object(**{"a-b": {}}),
            "additionalProperties": {"type": "integer"},
        },
    )


def _recursive() -> Iterator[tuple[str, Json, Json]]:
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    }
    yield (
        "tree",
        {**_object(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": tree}},
        {"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}},
    )
    yield "root", _object(again={"$ref": "#"}, first={"$ref": "#/properties/again"}), None
    yield "itself", _object(a={"$ref": "#/properties/a"}), {"$ref": "#"}
    yield (
        "in_place",
        {
            **_object(a={"$ref": "#/$defs/A"}),
            "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"allOf": [{"$ref": "#/$defs/A"}]}]}},
        },
        None,
    )
    yield (
        "json",
        {
            **_object(a={"$ref": "#/$defs/J"}),
            "$defs": {
                "J": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/J"}}]}
            },
        },
        None,
    )
    yield (
        "mutual",
        {
            **_object(a={"$ref": "#/$defs/A"}),
            "$defs": {"A": _object(b={"$ref": "#/$defs/B"}), "B": _object(a={"$ref": "#/$defs/A"})},
        },
        None,
    )


def _huge() -> Iterator[tuple[str, Json, Json]]:
    many = {f"p{number}": {"type": "string", "description": "d" * 500} for number in range(10_000)}
    yield (
        "wide",
        {"type": "object", "properties": many, "required": list(many)},
        {"type": "object", "properties": many},
    )
    yield (
        "long_enum",
        _object(a={"enum": [f"value {number}" for number in range(5_000)]}, b={"enum": ["x" * 10_000]}),
        None,
    )
    yield (
        "alternatives",
        _object(a={"anyOf": [_object(**{f"k{number}": {}}) for number in range(3_000)]}),
        None,
    )
    deep: Json = {"type": "string"}
    for _ in range(1_000):
        deep = {"type": "array", "items": deep, "properties": {"a": {"type": "object"}}}
    yield "deep", _object(a=deep), deep
    fan = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(60)
    }
    yield "fan", {**_object(a={"$ref": "#/$defs/d0"}), "$defs": {**fan, "d60": {"type": "string"}}}, None
    grow = {
        f"o{n}": _object(a={"$ref": f"#/$defs/o{n + 1}"}, b={"$ref": f"#/$defs/o{n + 1}"}) for n in range(60)
    }
    yield "grow", {**_object(a={"$ref": "#/$defs/o0"}), "$defs": grow}, None
    chain = {
        f"c{n}": {"type": "array", "items": _object(a={"$ref": f"#/$defs/c{n + 1}"})} for n in range(500)
    }
    yield (
        "chain",
        {**_object(a={"$ref": "#/$defs/c0"}), "$defs": chain},
        {"$ref": "#/$defs/c0", "$defs": chain},
    )
    merge = {
        f"m{n}": {"allOf": [{"$ref": f"#/$defs/m{n + 1}"}] * 2, **_object(**{f"x{n}": {}})} for n in range(60)
    }
    yield "merge", {**_object(a={"$ref": "#/$defs/m0"}), "$defs": merge}, None
    yield "long_name" * 100, _object(**{"long name " * 500: {"title": "T" * 10_000, **_object(a={})}}), None
    yield "big_numbers", _object(a={"minimum": 10**400, "default": 10**400, "enum": [10**400, 10**20]}), None
