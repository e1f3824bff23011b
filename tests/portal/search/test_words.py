from hypothesis import given
from hypothesis import strategies as st

from portal.catalog.search.query import terms_of


def test_spellings_of_one_identifier_share_their_terms() -> None:
    parts = terms_of("create issue", 100)
    for spelling in (
        "create_issue",
        "create-issue",
        "createIssue",
        "CreateIssue",
        "CREATE_ISSUE",
        "creating issues",
    ):
        assert set(parts) <= set(terms_of(spelling, 100)), spelling


def test_acronym_before_a_word_is_a_word_of_its_own() -> None:
    assert terms_of("parseHTTPRequest", 100)[:3] == terms_of("parse http request", 100)


def test_case_and_accents_do_not_matter() -> None:
    assert terms_of("Übergröße café", 100) == terms_of("ubergrosse CAFE", 100)


def test_stopwords_and_shortened_verbs_are_no_terms() -> None:
    assert terms_of("What's the file I don't have?", 100) == terms_of("file", 100)


def test_unspaced_scripts_become_pairs() -> None:
    assert terms_of("搜索文件", 100) == ["搜索", "索文", "文件"]


@given(st.text(max_size=200))
def test_any_text_has_terms_without_spaces_or_case(text: str) -> None:
    for term in terms_of(text, 100):
        assert term == "".join(term.split())
        assert term == term.casefold()
