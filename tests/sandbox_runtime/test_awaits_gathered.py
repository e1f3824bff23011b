"""Calls that are given to an awaited `asyncio.gather`: no value has to be followed to see that they are awaited."""

import ast
import builtins
from typing import Any

import pytest

from sandbox_runtime.guest import awaits
from sandbox_runtime.guest.library_names import LibraryNames
from sandbox_runtime.guest.scopes import Scopes

GATHERED = """\
await asyncio.gather(git.f(x=1), git.f(x=2), return_exceptions=True)
await asyncio.gather(*[git.f(x=x) for x in range(3)])
await asyncio.gather(*(git.f(x=x) for x in range(3)))
await asyncio.gather(*[git.f(x=1), git.f(x=2)], git.f(x=3), *(git.f(x=4), git.f(x=5)))
a = await asyncio.gather(*[git.f(x=x["x"]) for x in await git.f(y=1)])
"""
FOLLOWED = """\
asyncio.gather(git.f(x=1))
await asyncio.gather([git.f(x=1)])
await asyncio.gather(*git.f(x=1))
await asyncio.gather(*[git.f(x=x)["x"] for x in range(3)])
await asyncio.gather(*[git.f(x=x) if x else None for x in range(3)])
await asyncio.gather(*{git.f(x=x) for x in range(3)})
await asyncio.gather(git.f(x=1), key=git.f(x=2))
await own.asyncio.gather(git.f(x=1))
asyncio = git; await asyncio.gather(git.f(x=1))
"""


def forgotten(text: str, monkeypatch: pytest.MonkeyPatch, namespaces: set[str]) -> bool | list[Any]:
    """What is forgotten; True if values had to be followed to know."""

    class FollowedError(Exception): ...

    def followed(*_: object) -> None:
        raise FollowedError

    monkeypatch.setattr(builtins, "asyncio", None, raising=False)  # it lies ready for scripts
    monkeypatch.setattr(awaits, "DataFlow", followed)
    tree = ast.parse(text)
    scopes = Scopes(tree)
    try:
        return awaits.forgotten_calls(tree, scopes, LibraryNames(tree, scopes, frozenset(namespaces)))
    except FollowedError:
        return True


@pytest.mark.parametrize(
    "head", ["", "import asyncio\n", "import asyncio as aio\n", "from asyncio import gather\n"]
)
@pytest.mark.parametrize("script", GATHERED.splitlines())
def test_gathered_calls_are_awaited(script: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if " as " in head:
        script = script.replace("asyncio.", "aio.")
    elif head.startswith("from"):
        script = script.replace("asyncio.", "")
    assert forgotten(head + script, monkeypatch, {"git"}) == []


@pytest.mark.parametrize("script", FOLLOWED.splitlines())
def test_all_else_is_followed(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert forgotten(script, monkeypatch, {"git"}) is True


def test_library_of_that_name_gathers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forgotten("await asyncio.gather(x=1, *[git.f(x=1)])", monkeypatch, {"git", "asyncio"}) is True
