"""Only the id of a session, or its beginning, leads to it: nothing near it, that reads alike or breaks the search.

The guessed id is refused before anything runs: no call, no output. The twin is the id itself.
"""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, opened, tool

pytestmark = pytest.mark.anyio

Guess: TypeAlias = Callable[[str], str]

SCRIPT = 'print("ran")\nawait store.echo()\nx'
GUESSES: dict[str, Guess] = {
    "all but the first": lambda own: own[1:],
    "too little of it": lambda own: own[:3],
    "with a blank behind": lambda own: own + " ",
    "with a line break": lambda own: own + "\n",
    "in wide letters": lambda own: "".join(chr(ord(letter) + 0xFEE0) for letter in own),
    "as a pattern": lambda own: own[:3] + "*",
    "as code": lambda own: "' or 1 or '",
    "endless": lambda own: own * 20_000,
}
KINDS: dict[str, Json] = {"a list": ["x"], "a number": 7}


@pytest.fixture(scope="module")
def store() -> Peer:
    return Peer(tool("echo"))


@pytest.fixture(scope="module")
async def portal(store: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("ids")
    async with opened(folder, {"store": store}, server={"check": "off", "sessions": 2}) as portal:
        yield portal


@pytest.fixture(scope="module")
async def own(portal: Opened) -> str:
    answer = await portal.run("x = 1", session="new")
    assert isinstance(answer["session"], str)
    return answer["session"]


@pytest.mark.parametrize("name", GUESSES)
async def test_what_is_not_the_id_leads_nowhere(portal: Opened, store: Peer, own: str, name: str) -> None:
    before = len(store.calls)
    answer = await portal.run(SCRIPT, session=GUESSES[name](own))
    assert (answer["status"], answer["error"]["code"]) == ("refused", "unknown_session")
    assert (answer["stdout"], answer["calls"], len(store.calls)) == ("", [], before)
    assert own not in answer["error"]["message"] or own in GUESSES[name](own)
    twin = await portal.run(SCRIPT, session=own)
    assert (twin["result"], twin["stdout"], len(store.calls)) == (1, "ran\n", before + 1)


@pytest.mark.parametrize("name", KINDS)
async def test_what_is_no_text_is_no_id(portal: Opened, store: Peer, own: str, name: str) -> None:
    before = len(store.calls)
    result = await portal.call("execute_code", code=SCRIPT, session=KINDS[name])
    assert (result.is_error, len(store.calls)) == (True, before)
    assert await portal.result_of("x", session=own) == 1


async def test_ids_have_nothing_in_common(portal: Opened) -> None:
    ids = [(await portal.run("1", session="new"))["session"] for _ in range(8)]
    assert len({identifier[start : start + 8] for identifier in ids for start in (0, 8, 16)}) == 24
    assert all(len(identifier) >= 20 for identifier in ids)
