"""What a misspelt name may have meant.

Comparing letter by letter takes about 10 µs a name, so with 11,000 functions only the namespaces that are near
by name are searched so; all of them only if those, and the very same name elsewhere, give nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from portal.library.namespace import Namespace

_NEAR_ENOUGH = 0.6
_VERY_NEAR = 0.75
_LONGEST_NAME = 80


def nearest_names(name: str, names: Iterable[str], n: int = 3, nearness: float = _NEAR_ENOUGH) -> list[str]:
    """The names most like this one, letter by letter or word by word in any order; the nearest first."""
    plain = {each[:_LONGEST_NAME].lower(): each for each in names}
    sorted_words = {_in_word_order(each): original for each, original in plain.items()}
    wanted = name[:_LONGEST_NAME].lower()
    found = [plain[match] for match in get_close_matches(wanted, plain, n, nearness)]
    found += [
        sorted_words[match] for match in get_close_matches(_in_word_order(wanted), sorted_words, n, nearness)
    ]
    return list(dict.fromkeys(found))[:n]


def nearest_functions(qualified: str, namespaces: Mapping[str, Namespace], n: int) -> list[str]:
    """Qualified names: first those in the namespace itself or one like it, then the same name elsewhere."""
    namespace, _, function = qualified.rpartition(".")
    near = [namespace] if namespace in namespaces else nearest_names(namespace, namespaces, n)
    found = [
        f"{each}.{name}" for each in near for name in nearest_names(function, namespaces[each].functions, n)
    ]
    found += [f"{each}.{function}" for each, space in namespaces.items() if function in space.functions]
    return list(dict.fromkeys(found or _anywhere(function, namespaces, n)))[:n]


def _anywhere(function: str, namespaces: Mapping[str, Namespace], n: int) -> list[str]:
    homes = {name: each for each, space in reversed(list(namespaces.items())) for name in space.functions}
    return [f"{homes[name]}.{name}" for name in nearest_names(function, homes, n, _VERY_NEAR)]


def _in_word_order(name: str) -> str:
    words: Sequence[str] = sorted(name.split("_"))
    return "_".join(words)
