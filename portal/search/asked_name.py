"""A query that is a function's name, however it is quoted or called."""

from collections.abc import Iterator

_MAX_DOTS = 16
"""Of a name with more of them only the first ones may stand behind an upstream's key."""


def asked_name(query: str) -> str:
    """The name in `jira.create_issue`, "create_issue" or await jira.create_issue(title="x"), in lower case."""
    bare = query.strip().strip("`'\"").strip().removeprefix("await ").strip().casefold()
    name, bracket, _ = bare.partition("(")
    is_call = bracket and bare.endswith(")") and not name.endswith(" ")
    return name if is_call else bare


def partitions(name: str) -> Iterator[tuple[str, str]]:
    """What stands before and behind each dot: an upstream's key and a tool's name may have some of their own."""
    at = -1
    for _ in range(_MAX_DOTS):
        at = name.find(".", at + 1)
        if at < 0:
            return
        yield name[:at], name[at + 1 :]
