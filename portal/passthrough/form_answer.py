"""What a person filled into a form, in the words of the upstream that asked.

People are shown names and choices without secrets and in one line; the upstream is answered with its own.
"""

from collections.abc import Iterator
from typing import Final

from manifests.json_value import Json

_CHOICES: Final = ("oneOf", "anyOf")


def is_ambiguous(asked: Json, shown: Json) -> bool:
    """Whether two names, or two choices of one property, look the same as they are shown."""
    theirs, ours = _properties(asked), _properties(shown)
    if len(theirs) != len(ours):
        return True
    choices = [(_choices(a), _choices(b)) for a, b in zip(theirs.values(), ours.values(), strict=True)]
    return any(len(a) != len(b) or len({*map(repr, a)}) != len({*map(repr, b)}) for a, b in choices)


def as_meant(answer: dict[str, Json], asked: Json, shown: Json) -> dict[str, Json]:
    """The answer with the names and choices of the schema that was asked, instead of those that were shown."""
    content = answer.get("content")
    if not isinstance(content, dict):
        return answer
    ours = _properties(shown)
    theirs = dict(zip(ours, _properties(asked).items(), strict=True))
    meant: dict[str, Json] = {}
    for name, value in content.items():
        own_name, own = theirs.get(name, (name, None))
        meant[own_name] = _value(value, _meanings(own, ours.get(name)))
    return {**answer, "content": meant}


def _value(value: Json, meanings: dict[str, Json]) -> Json:
    if isinstance(value, list):
        return [_value(each, meanings) for each in value]
    return meanings.get(value, value) if isinstance(value, str) else value


def _meanings(asked: Json, shown: Json) -> dict[str, Json]:
    """What is meant by each text that can be chosen; what is there beforehand may just be left there."""
    pairs = [*zip(_defaults(shown), _defaults(asked), strict=True)]
    pairs += zip(_choices(shown), _choices(asked), strict=True)
    return {text: meant for text, meant in pairs if isinstance(text, str)}


def _properties(schema: Json) -> dict[str, Json]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def _defaults(schema: Json) -> list[Json]:
    default = schema.get("default") if isinstance(schema, dict) else None
    return default if isinstance(default, list) else [default]


def _choices(schema: Json) -> list[Json]:
    """The values of one property that can be chosen, in their order."""
    return [*_chosen_from(schema), *_chosen_from(schema.get("items") if isinstance(schema, dict) else None)]


def _chosen_from(schema: Json) -> Iterator[Json]:
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("enum"), list):
        yield from schema["enum"]
    for key in _CHOICES:
        for each in schema[key] if isinstance(schema.get(key), list) else ():
            if isinstance(each, dict):
                yield each.get("const")
