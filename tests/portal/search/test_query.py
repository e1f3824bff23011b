import pytest

from portal.search.query import read_query
from portal.search.words import terms_of


def test_words_of_the_asking_are_left_out() -> None:
    assert list(read_query("please show me how I could use the weather forecast").words) == terms_of(
        "weather forecast", 100
    )


def test_words_of_the_asking_count_when_there_is_nothing_else() -> None:
    assert read_query("help me").words == ("help",)


def test_a_task_is_read_sentence_by_sentence() -> None:
    query = read_query("Find the bug in the repository. Open an issue and then mail the report to Ann.")
    assert [list(words) for words in query.sentences] == [
        terms_of("find bug repository", 100),
        terms_of("open issue", 100),
        terms_of("mail report Ann", 100),
    ]


def test_a_single_sentence_is_not_split() -> None:
    assert read_query("merge the pull request of v1.2, please!").sentences == ()


def test_a_hostile_query_is_bounded() -> None:
    query = read_query("drop the table. " * 100_000)
    assert len(query.words) <= 4_000
    assert len(query.sentences) <= 16


@pytest.mark.parametrize(
    ("task", "steps"),
    [
        ("find all open billing issues and mail their owners", ["open billing issues find", "mail owners"]),
        (
            "Please export the table, convert it to PDF, then upload it to the drive",
            ["export table", "convert pdf", "upload drive"],
        ),
        ("1. Close the ticket\n2. Notify the customer", ["close ticket 1", "notify customer 2"]),
    ],
)
def test_a_task_that_spells_out_its_steps_is_read_step_by_step(task: str, steps: list[str]) -> None:
    assert [sorted(step.words) for step in read_query(task).steps] == [
        sorted(terms_of(step, 100)) for step in steps
    ]


@pytest.mark.parametrize(
    "query",
    [
        "find files and folders",
        "read and write files",
        "the terms and conditions",
        "weather in Paris and London",
        "I would like to know whether there are issues and mail them",
        "create issue",
    ],
)
def test_what_is_no_list_of_steps_is_not_taken_apart(query: str) -> None:
    assert read_query(query).steps == ()


def test_hostile_steps_are_bounded() -> None:
    assert len(read_query("delete the table and " * 100_000).steps) <= 5
