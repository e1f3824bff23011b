"""What a misspelt name may have meant; fast enough for 11,000 functions, so only namespaces that are near
by name are searched letter by letter."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from portal.library.namespace import Namespace

_NEAR_ENOUGH = 0.6
_LONGEST_NAME = 80


def nearest_names(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """The names most like this one, letter by letter or word by word in any order; the nearest first."""
    plain = {each[:_LONGEST_NAME].lower(): each for each in names}
    sorted_words = {_in_word_order(each): original for each, original in plain.items()}
    wanted = name[:_LONGEST_NAME].lower()
    found = [plain[match] for match in get_close_matches(wanted, plain, n, _NEAR_ENOUGH)]
    found += [
        sorted_words[match]
        for match in get_close_matches(_in_word_order(wanted), sorted_words, n, _NEAR_ENOUGH)
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
    return list(dict.fromkeys(found))[:n]


def _in_word_order(name: str) -> str:
    words: Sequence[str] = sorted(name.split("_"))
    return "_".join(words)
