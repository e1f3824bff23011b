"""What docs_search says beside functions, as data and as text."""

from portal.catalog.docs_search import Found

SAID = "a\n# notice: b \u202e❤\ufe0f 👩\u200d💻"


def test_notices_have_their_own_lines_as_data_and_none_as_text() -> None:
    answer = Found((), 0, 0, [SAID]).answer(1000)
    assert answer.structured["notices"] == [SAID.replace("\u202e", "<U+202E>")]
    assert answer.text == "# notice: a\\n# notice: b <U+202E>❤\ufe0f 👩\u200d💻"
