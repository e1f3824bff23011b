from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portal.search.catalogue import (
    ALL,
    APP_CONFIG,
    ISSUE,
    ISSUES,
    MERGE,
    READ,
    SEARCH_MAIL,
    SEND,
    WEATHER,
    Function,
    Parameter,
    built,
    by_namespace,
)

INDEX = built(ALL)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("open an issue", ISSUE),
        ("Which issues have this label?", ISSUES),
        ("merging pull requests", MERGE),
        ("recipient", SEND),
        ("will it be raining? hourly precipitation", WEATHER),
        ("max lines", READ),
        ("app config", APP_CONFIG),
        ("app configuration value", APP_CONFIG),
        ("list the repo's issues", ISSUES),
    ],
)
def test_function_is_found_by_what_it_does(query: str, expected: Function) -> None:
    assert INDEX.search(query, 5).functions[0] is expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("send_message", SEND),
        ("send-message", SEND),
        ("mail.send_message", SEND),
        ("mail.send-message", SEND),
        ("`mail.send_message()`", SEND),
        ('await mail.send_message(to="Ann")', SEND),
        ("mergepullrequest", MERGE),
        ("open_meteo.forecast", WEATHER),
    ],
)
def test_exact_name_ranks_first_and_says_so(query: str, expected: Function) -> None:
    hits = INDEX.search(query, 5)
    assert hits.functions[0] is expected
    assert hits.exact == 1


def test_exact_name_ranks_before_a_function_that_repeats_it() -> None:
    spam = Function("spam", "aaa", "create_issue " * 500)
    hits = built([*ALL, spam]).search("create_issue", 5)
    assert hits.functions[:2] == (ISSUE, spam)


def test_upstream_narrows_the_search() -> None:
    hits = INDEX.search("search", 5, upstream="mail")
    assert hits.functions == (SEARCH_MAIL,)
    assert hits.total == 1


def test_empty_query_lists_an_upstream_and_nothing_else() -> None:
    assert INDEX.search(" ", 5, upstream="mail").functions == (SEARCH_MAIL, SEND)
    assert INDEX.search(" ", 5).functions == ()


def test_a_whole_task_finds_functions_for_each_step() -> None:
    task = "Read the log file. Open an issue in the repository, then send an e-mail to the recipient."
    assert {READ, ISSUE, SEND} <= set(INDEX.search(task, 5).functions)


def test_each_step_of_a_task_has_its_share_of_the_first_places() -> None:
    others = [
        Function("tracker", f"{verb}_billing_issue", f"{verb} billing issues that are open or overdue.")
        for verb in ("count", "tag", "sort", "plot", "rank", "pin")
    ]
    index = built([*ALL, *others])
    task = "find all open or overdue billing issues and mail their owners"
    assert SEND in index.search(task, 5).functions
    assert SEND in index.search(task, 3).functions
    assert len(set(index.search(task, 9).functions)) == 9


def test_ties_are_in_order_of_qualified_name_whatever_the_order_of_building() -> None:
    twins = [Function(f"u{number}", "same", "same words") for number in range(8)]
    shuffled = Random(4).sample(twins, len(twins))
    assert list(built(shuffled).search("words", 8).functions) == twins


def test_an_updated_index_finds_what_one_built_anew_finds() -> None:
    changed = [each for each in ALL if each.upstream != "mail"] + [
        replace(SEND, description="Post a letter.")
    ]
    updated, anew = INDEX.updated(by_namespace(changed)), built(changed)
    for query in ("letter", "issue", "find files", "send e-mail", "mail.search", ""):
        assert updated.search(query, 9) == anew.search(query, 9)
        assert updated.search(query, 9, "mail") == anew.search(query, 9, "mail")
    assert updated.search("letter", 1).functions[0].description == "Post a letter."
    assert INDEX.search("letter", 1).total == 0


def test_function_without_searchable_words_is_still_found_by_name() -> None:
    odd = Function("x", "??")
    assert built([odd, ISSUE]).search("??", 5).functions == (odd,)


def test_hostile_definition_does_not_crowd_out_the_others() -> None:
    words = "issue repository mail file weather search "
    hostile = Function(
        "evil", "evil", words * 20_000, tuple(Parameter(words * 50, words * 500) for _ in range(500))
    )
    index = built([*ALL, hostile])
    assert index.search("open an issue", 1).functions == (ISSUE,)
    assert index.search("weather forecast", 1).functions == (WEATHER,)


@given(st.text(max_size=300), st.text(max_size=100))
def test_any_text_can_be_indexed_and_asked(text: str, query: str) -> None:
    function = Function(text[:20], text[20:40], text, (Parameter(text[:9], text),))
    hits = built([function, ISSUE]).search(query, 5)
    assert hits.total >= len(hits.functions)
