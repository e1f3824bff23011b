"""A query in the words of one server finds the equivalent tool of another."""

import pytest

from tests.portal.search.catalogue import Function, built


def _tool(upstream: str, tool: str) -> Function:
    return Function(upstream, tool, f"{tool.replace('_', ' ').capitalize()} of the workspace.")


VERBS = ("list", "search", "get", "create", "update", "delete")
ISSUES = {verb: _tool("tracker", f"{verb}_issue") for verb in VERBS}
PULLS = {verb: _tool("forge", f"{verb}_pull_request") for verb in VERBS}
FOLDERS = {verb: _tool("drive", f"{verb}_folder") for verb in VERBS}
INDEX = built([*ISSUES.values(), *PULLS.values(), *FOLDERS.values()])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("remove ticket", ISSUES["delete"]),
        ("new ticket", ISSUES["create"]),
        ("edit the ticket", ISSUES["update"]),
        ("lookup a bug", ISSUES["search"]),
        ("show pull request", PULLS["get"]),
        ("fetch a pull request", PULLS["get"]),
        ("enumerate pull requests", PULLS["list"]),
        ("make directory", FOLDERS["create"]),
        ("erase directories", FOLDERS["delete"]),
        ("find directory", FOLDERS["search"]),
    ],
)
def test_other_words_find_the_same_role(query: str, expected: Function) -> None:
    assert INDEX.search(query, 3).functions[0] is expected


def test_the_word_that_was_asked_for_comes_before_another_one() -> None:
    remove = _tool("tracker", "remove_issue")
    index = built([*ISSUES.values(), remove])
    assert index.search("remove issue", 2).functions == (remove, ISSUES["delete"])


def test_a_word_that_many_names_have_comes_before_a_rare_one_that_may_stand_for_it() -> None:
    many = [
        Function("store", f"get_{word}", "")
        for word in ["alpha", "beta", "gamma", "delta", "omega", "sigma", "kappa"]
    ]
    get, describe = Function("store", "get_table", ""), Function("store", "describe_table", "")
    index = built([*many, describe, get])
    assert index.search("get the table", 2).functions == (get, describe)
