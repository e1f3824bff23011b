"""What a client sends is read as its writer meant it, or refused in words."""

import pytest

from manifests.json_value import Json
from portal.docs_search import DocsSearchRequest
from portal.execution import ExecuteCode
from portal.requests import RequestError, docs_search_request, execute_code_request


def test_null_counts_as_left_out() -> None:
    assert execute_code_request({"code": "1", "session": None, "timeout_seconds": None}) == ExecuteCode("1")


def test_docs_search_needs_nothing() -> None:
    assert docs_search_request({}) == DocsSearchRequest()


def test_a_limit_written_as_text_is_read() -> None:
    assert docs_search_request({"limit": "7"}).limit == 7


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": 5},
        {"detail": "all"},
        {"limit": 0},
        {"limit": 51},
        {"limit": 2.5},
        {"limit": True},
        {"limit": float("nan")},
        {"limit": float("inf")},
        {"limit": "x"},
        {"limit": "²"},
        {"limits": 3},
    ],
)
def test_a_wrong_docs_search_argument_is_named(arguments: dict[str, Json]) -> None:
    with pytest.raises(RequestError, match=next(iter(arguments))):
        docs_search_request(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"code": 1},
        {"code": "1", "timeout_seconds": 0},
        {"code": "1", "timeout_seconds": "fast"},
        {"code": "1", "timeout_seconds": float("nan")},
        {"code": "1", "timeout_seconds": 10**400},
        {"code": "1", "timeout_seconds": 10**5_000},
        {"script": "1"},
    ],
)
def test_a_wrong_execute_code_argument_is_refused(arguments: dict[str, Json]) -> None:
    with pytest.raises(RequestError):
        execute_code_request(arguments)


def test_every_wrong_argument_is_told_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        docs_search_request({"query": 1, "limit": 99})
    assert "`query`" in str(caught.value)
    assert "`limit`" in str(caught.value)


def test_an_empty_name_counts_as_left_out() -> None:
    assert docs_search_request({"query": "", "upstream": ""}) == DocsSearchRequest()
    assert execute_code_request({"code": "", "session": ""}) == ExecuteCode("")
