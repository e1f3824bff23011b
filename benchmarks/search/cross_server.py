"""Queries in the words of one server whose answer is the equivalent tool of another, made from the registries.

Two tools count as equivalent if their names say the same, word by word, leaving out the words of their servers' names,
and one of the words is list, search, get, create, update or delete: `linear_create_issue` of linear, `createIssue` of
jira. The query is the first sentence of one tool's description, as its author wrote it; that author's server is not
searched; any equivalent tool of another server is right. Sentences that another equivalent tool has too are left out
(servers are copied), and so are those of fewer than 3 or more than 25 words; of one name at most 4 are asked.

The set `other_words` has those that lack a word of the name: "Remove a label" for `delete_label`. What is equivalent
rests on nothing of our own search; but names that say the same do not always do the same, so 1 is not within reach.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from benchmarks.search.recorded import Asked, RecordedFunction

VERBS = frozenset({"list", "search", "get", "create", "update", "delete"})
MOST_OF_A_NAME = 4
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SENTENCE = re.compile(r"^.*?(?=[.!?](?:\s|$)|\n|$)", re.DOTALL)


def cross_server_queries(functions: Sequence[RecordedFunction]) -> Iterator[Asked]:
    for name, same in sorted(_by_name(functions).items()):
        asked = [each for each in same if _is_askable(each, same)][:MOST_OF_A_NAME]
        for each in asked:
            sentence = first_sentence(each)
            others = frozenset(other.answer for other in same if other.upstream != each.upstream)
            kind = "same_words" if _says(sentence, name) else "other_words"
            yield Asked(f"cross_server_{kind}", "mcp", sentence, (others,), hidden=each.upstream)


def words_of_name(function: RecordedFunction) -> tuple[str, ...]:
    """The words of the tool's name that are none of its server's."""
    own = set(_words(function.upstream))
    return tuple(word for word in _words(function.tool) if word not in own)


def first_sentence(function: RecordedFunction) -> str:
    found = _SENTENCE.match(function.description.strip())
    return " ".join(found[0].split()) if found else ""


def _by_name(functions: Sequence[RecordedFunction]) -> dict[tuple[str, ...], list[RecordedFunction]]:
    named: defaultdict[tuple[str, ...], list[RecordedFunction]] = defaultdict(list)
    for each in functions:
        words = words_of_name(each)
        if len(words) > 1 and VERBS & set(words):
            named[words].append(each)
    return {name: same for name, same in named.items() if len({each.upstream for each in same}) > 1}


def _is_askable(function: RecordedFunction, same: Sequence[RecordedFunction]) -> bool:
    sentence = first_sentence(function)
    others = (other for other in same if other.upstream != function.upstream)
    is_copied = any(first_sentence(other).casefold() == sentence.casefold() for other in others)
    return not is_copied and 3 <= len(sentence.split()) <= 25


def _says(sentence: str, name: Sequence[str]) -> bool:
    """Whether the sentence has all words of the name, whatever their endings."""
    said = {word[:4] for word in _words(sentence)}
    return all(word[:4] in said for word in name)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
