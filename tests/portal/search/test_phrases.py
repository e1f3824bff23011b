"""Small words, which say nothing elsewhere, tell names apart; and a query may say all of a name and no more."""

import pytest

from tests.portal.search.catalogue import Function, built


def _tools(*names: str) -> list[Function]:
    return [Function("home", name, f"{name.replace('_', ' ').capitalize()}.") for name in names]


INDEX = built(
    [
        *_tools("turn_off_light", "turn_on_light", "scale_down", "scale_up", "check_in", "check_out"),
        *_tools("create_post", "delete_post", "get_post", "like_post", "share_post", "show_posts"),
        *_tools("get_in_holidays", "get_it_holidays", "get_uk_holidays", "get_us_holidays"),
        *_tools("celsius_to_fahrenheit", "fahrenheit_to_celsius", "get_post_by_id"),
    ]
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("turn on the light", "turn_on_light"),
        ("turn off the light", "turn_off_light"),
        ("switch the light on", "turn_on_light"),
        ("switch the light off", "turn_off_light"),
        ("scale up deployment", "scale_up"),
        ("scale the deployment down", "scale_down"),
        ("check out", "check_out"),
        ("check in", "check_in"),
        ("like a post", "like_post"),
        ("I would like to share a post", "share_post"),
        ("US holidays", "get_us_holidays"),
        ("IT holidays", "get_it_holidays"),
        ("5 degrees fahrenheit to celsius", "fahrenheit_to_celsius"),
        ("5 degrees celsius to fahrenheit", "celsius_to_fahrenheit"),
        ("get a post by its id", "get_post_by_id"),
    ],
)
def test_small_words_of_a_name_tell_it_from_its_opposite(query: str, expected: str) -> None:
    assert INDEX.search(query, 3).functions[0].name == expected


def test_small_words_alone_find_nothing() -> None:
    assert INDEX.search("bake bread in, on or by", 3).total == 0


@pytest.mark.parametrize("query", ["get table", "get the tables", "table get"])
def test_a_name_that_says_what_was_asked_and_no_more_comes_first(query: str) -> None:
    wordy = [
        Function("store", f"get_table_{word}", f"Get the table. Table of {word}, table by table.")
        for word in ("rows", "columns", "keys")
    ]
    plain = Function(
        "store", "getTable", "Answers with rows and columns and keys, and much else that is told at length."
    )
    assert built([*wordy, plain]).search(query, 4).functions[0] is plain
