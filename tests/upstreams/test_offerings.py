"""Lists of resources and prompts are read however they are written, and end."""

from collections.abc import Awaitable, Callable

import pytest

from manifests.json_value import Json
from upstreams.errors import UpstreamAnswerError, UpstreamRefusedError, UpstreamTimeoutError
from upstreams.upstream import Listed, read_offered

pytestmark = pytest.mark.anyio

Page = Callable[[Json], Awaitable[dict[str, Json]]]


def pages(*answers: dict[str, Json] | Exception) -> Page:
    """Answers these, one after the other, and the last one again and again."""
    asked = 0

    async def page(cursor: Json) -> dict[str, Json]:
        nonlocal asked
        answer = answers[min(asked, len(answers) - 1)]
        asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    return page


def rows(count: int) -> list[Json]:
    return [{"uri": f"note://{number}", "name": "n"} for number in range(count)]


@pytest.mark.parametrize(
    ("listed", "raw", "read"),
    [
        ("resources", [{"uri": "a:b", "name": "n", "size": 3}], [{"uri": "a:b", "name": "n", "size": 3}]),
        ("resources", [{"uri": "a:b"}], [{"uri": "a:b", "name": "a:b"}]),
        ("resources", [{"uri": "a:b", "name": 7}, {"uri": "c:d", "title": []}], []),
        (
            "resources",
            [{"uri": "a:b", "name": "1"}, {"uri": "a:b", "name": "2"}],
            [{"uri": "a:b", "name": "1"}],
        ),
        ("resources", [None, 7, "x", [], {}, {"uri": ""}, {"uri": 7}, {"uri": "x" * 9_000}], []),
        ("resources", "no list", []),
        ("resources", None, []),
        ("resourceTemplates", [{"uriTemplate": "a:{b}"}], [{"uriTemplate": "a:{b}", "name": "a:{b}"}]),
        ("prompts", [{"name": "p"}], [{"name": "p", "arguments": []}]),
        (
            "prompts",
            [{"name": "p", "arguments": [{"name": "a"}]}, {"name": "q", "arguments": [{"name": 7}]}],
            [{"name": "p", "arguments": [{"name": "a", "required": False}]}],
        ),
    ],
)
async def test_rows_are_kept_as_far_as_they_can_be_used(listed: Listed, raw: Json, read: Json) -> None:
    assert await read_offered(listed, pages({listed: raw})) == read


async def test_pages_follow_one_another_and_end() -> None:
    first: dict[str, Json] = {"resources": rows(2), "nextCursor": "2"}
    last: dict[str, Json] = {"resources": [{"uri": "last:"}]}
    assert len(await read_offered("resources", pages(first, last))) == 3
    assert len(await read_offered("resources", pages(first))) == 2, "a cursor that came before ends it"


async def test_a_server_that_does_not_know_the_method_offers_nothing() -> None:
    unknown = UpstreamRefusedError("no", rpc_code=-32601)
    assert await read_offered("prompts", pages(unknown)) == []
    for error in (
        UpstreamRefusedError("no", rpc_code=-32000),
        UpstreamAnswerError("no"),
        UpstreamTimeoutError("no"),
    ):
        with pytest.raises(type(error)):
            await read_offered("prompts", pages(error))
        first: dict[str, Json] = {"resources": rows(2), "nextCursor": "2"}
        assert len(await read_offered("resources", pages(first, error))) == 2


@pytest.mark.parametrize("cursor", ["x", "", 1, 0, 1.5])
async def test_cursor_is_followed_whatever_it_is(cursor: Json) -> None:
    noted: list[str] = []
    first, last = rows(2)
    listed = pages({"resources": [first], "nextCursor": cursor}, {"resources": [last]})
    assert await read_offered("resources", listed, noted.append) == [first, last]
    assert noted == []


@pytest.mark.parametrize("cursor", [True, {}, ["x"]])
async def test_cursor_that_cannot_be_followed_is_noted(cursor: Json) -> None:
    noted: list[str] = []
    assert await read_offered("resources", pages({"resources": rows(1), "nextCursor": cursor}), noted.append)
    assert len(noted) == 1 and "nextCursor" in noted[0]
