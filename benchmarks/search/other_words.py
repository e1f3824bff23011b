"""Queries made from the registries: the names of tools with other words in them, and two queries joined to one task.

`other_verb`: a tool's name whose first word is list, search, get, create, update or delete, with another word for that
("remove label" for `delete_label`); `other_object`: with another word for one of its objects ("create ticket" for
`create_issue`); `other_verb_and_object`: both. Right is any tool of that name, of whichever server. Names that a tool
really has are not asked. The other words are ones that the index has been told of (portal/catalog/search/query.py):
what is measured is whether such a word is enough to find one tool among thousands, not how many words it has been told
of.

`own_words`: a tool's name as it is, of those that begin with one of these words; `own_small_words`: of those with words
that search leaves out elsewhere, like "to", "by", "all" and "like".

`two_steps`: two queries of the sets azure and livemcp_step, drawn at random, joined by "and"; both needs count.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from benchmarks.search.cross_server import words_of_name
from benchmarks.search.recorded import Answer, Asked, RecordedFunction
from portal.catalog.search.query import ASKING, STOPWORDS

MOST = 300
SEED = 20261122

SMALL = STOPWORDS | ASKING
VERBS = {
    "list": ("enumerate", "show"),
    "search": ("find", "query"),
    "get": ("show", "read", "fetch"),
    "create": ("add", "new", "make"),
    "update": ("edit", "change", "modify"),
    "delete": ("remove", "erase"),
}
OBJECTS = {
    "issue": "ticket",
    "repository": "repo",
    "directory": "folder",
    "folder": "directory",
    "image": "picture",
    "message": "mail",
    "comment": "note",
    "user": "member",
    "event": "appointment",
    "task": "todo",
    "document": "doc",
    "file": "document",
    "organization": "company",
    "label": "tag",
    "channel": "room",
    "database": "db",
}

Name = tuple[str, ...]


def other_words_queries(functions: Sequence[RecordedFunction]) -> Iterator[Asked]:
    draws = random.Random(SEED)
    named: defaultdict[Name, list[RecordedFunction]] = defaultdict(list)
    for each in functions:
        named[words_of_name(each)].append(each)
    names = sorted(name for name in named if 2 <= len(name) <= 3 and name[0] in VERBS)
    kinds = {
        "other_verb": [(name, said) for name in names for said in _with_other_verb(name)],
        "other_object": [(name, said) for name in names for said in _with_other_object(name)],
        "other_verb_and_object": [
            (name, said)
            for name in names
            for other in _with_other_object(name)
            for said in _with_other_verb(other)
        ],
    }
    for kind, pairs in kinds.items():
        askable = [(name, said) for name, said in pairs if said not in named]
        for name, said in draws.sample(askable, min(MOST, len(askable))):
            right = frozenset(each.answer for each in named[name])
            yield Asked(kind, "mcp", " ".join(said), (right,))


def own_words_queries(functions: Sequence[RecordedFunction]) -> Iterator[Asked]:
    draws = random.Random(SEED)
    named: defaultdict[Name, set[Answer]] = defaultdict(set)
    for each in functions:
        named[words_of_name(each)].add(each.answer)
    names = [name for name in sorted(named) if 2 <= len(name) <= 5]
    kinds = {
        "own_words": [name for name in names if name[0] in VERBS],
        "own_small_words": [name for name in names if not SMALL.isdisjoint(name)],
    }
    for kind, askable in kinds.items():
        for name in draws.sample(askable, min(MOST, len(askable))):
            yield Asked(kind, "mcp", " ".join(name), (frozenset(named[name]),))


def two_step_queries(asked: Sequence[Asked]) -> Iterator[Asked]:
    draws = random.Random(SEED)
    pool = [each for each in asked if each.set in ("azure", "livemcp_step") and len(each.query) < 160]
    for _ in range(MOST // 2):
        first, second = draws.sample(pool, 2)
        query = f"{first.query.rstrip('.?! ')} and {second.query[0].lower()}{second.query[1:]}"
        if first.needs != second.needs:
            yield Asked("two_steps", "mcp", query, (*first.needs, *second.needs))


def _with_other_verb(name: Name) -> Iterator[Name]:
    return ((verb, *name[1:]) for verb in VERBS[name[0]])


def _with_other_object(name: Name) -> Iterator[Name]:
    said = (name[0], *(OBJECTS.get(word) or OBJECTS.get(word.removesuffix("s"), word) for word in name[1:]))
    if said != name:
        yield said
