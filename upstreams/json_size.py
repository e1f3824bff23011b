"""How large JSON is, measured without building anything of that size."""

from manifests.json_value import Json


def is_larger(value: Json, characters: int) -> bool:
    """Whether it has more characters of text, and values, than that; it looks at no more of them."""
    todo = [value]
    while todo and characters >= 0:
        each = todo.pop()
        if isinstance(each, str | list | dict):
            characters -= len(each)
        characters -= 1
        if isinstance(each, list | dict) and characters >= 0:
            todo += each if isinstance(each, list) else [*each, *each.values()]
    return characters < 0
