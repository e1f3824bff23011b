"""What is printed as written, and what is spelt out because it hides or reorders something."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.library.hidden_characters import is_hidden
from portal.library.plain_text import spelt_out, unhidden, visible

ORDINARY = [
    "⚠️ Datei fehlt : «a» 1️⃣ #️⃣ ❤︎ ❤️‍🔥 ™️ ‼️ ↔️",
    "👩‍💻 👩🏽‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 🏴‍☠️ 🕵️‍♀️ 👍🏽",
    "🇩🇪 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f!",
    "می‌خواهم کار‌ها",
    "ශ්‍රී ലങ്ക ന്‍ ",
    "র‍্যাব ক্ষ र्‍य द्‌ध",
    "ភាសា​ខ្មែរ ภาษา​ไทย",
    "ᠮᠣᠩᠭᠣᠯ᠋ ᠬᠠ᠎ᠠ",
    "עברית עִבְרִית العربية ۝١",
    "全角　空白 읽다 Grüße 1 000 €",
    # Newer than what one Python or another knows.
    "🩷 \U0001fae9 \U0001fac8 \U0001fa8e\ufe0f 👩\u200d\U0001fa8e 〽️",
    "\U00031350 \U0002ebf0 \U000323b0\U00033479",
]
HIDING = {
    "abc\u202edef": "abc<U+202E>def",
    "می\u202eخواهم": "می<U+202E>خواهم",
    "ی\u200c\u200cخ": "ی<U+200C><U+200C>خ",
    "ی\u200c": "ی<U+200C>",
    "a\u200cb\u200dc\u200bd": "a<U+200C>b<U+200D>c<U+200B>d",
    "中\ufe0f文\u200d字": "中<U+FE0F>文<U+200D>字",
    "1\ufe0f2": "1<U+FE0F>2",
    "\ufe0f": "<U+FE0F>",
    "\ufe0f\u20e3": "<U+FE0F>\u20e3",
    "❤\ufe0f\ufe0f": "❤\ufe0f<U+FE0F>",
    "❤\ufe0f\ufe0e": "❤\ufe0f<U+FE0E>",
    "❤\U000e0101": "❤<U+E0101>",
    "👩\u200d": "👩<U+200D>",
    "👩\u200d\u200d💻": "👩<U+200D><U+200D>💻",
    "\u2800\ufe0f": "<U+2800><U+FE0F>",
    "🏴\U000e0068\U000e0069\U000e007f": "🏴<U+E0068><U+E0069><U+E007F>",
    "\U000e0067\U000e0062": "<U+E0067><U+E0062>",
    "कि\u2066\u2069": "कि<U+2066><U+2069>",
    "a\nb\t\u2028\x1b": "a\\nb<U+0009><U+2028><U+001B>",
    "\u0378\U0002fffe\U0003ffff\U000e0080": "<U+0378><U+2FFFE><U+3FFFF><U+E0080>",
    "葛\U000e0100": "葛<U+E0100>",
    "ه\u200d.": "ه<U+200D>.",
}


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_printed_as_written(text: str) -> None:
    assert spelt_out(text) == unhidden(text) == text


def test_what_python_does_not_know_yet_is_seen_by_models_too() -> None:
    assert visible("Likes a post 🩷 \U0001fa8e \U000323b0\u0378") == "Likes a post 🩷 \U0001fa8e \U000323b0"


@pytest.mark.parametrize("text", HIDING)
def test_what_hides_or_reorders_something_is_spelt_out(text: str) -> None:
    assert spelt_out(text) == HIDING[text]


def test_data_keeps_its_lines() -> None:
    assert unhidden("a\n\tb\u202e\r\u2028") == "a\n\tb<U+202E><U+000D><U+2028>"


UNSEEN = "\u200b\u200c\u200d\ufe0e\ufe0f\u180b\u202e\u2066\u2060\U000e0067\U000e0101\n\u2028"


@given(st.text(st.sampled_from(UNSEEN + "a1\u20e3❤👩🏽ی中क\u094dಂខ🏴ᠮ "), max_size=30))
def test_two_hidden_characters_never_stand_together_but_in_emoji(text: str) -> None:
    spelt = spelt_out(text)
    assert not set(spelt) & set("\u202e\u2066\u2060\U000e0101\n\u2028")
    for at, (one, other) in enumerate(pairwise(spelt)):
        if is_hidden(one) and is_hidden(other):
            assert one + other == "\ufe0f\u200d" and ord(spelt[at + 2]) > 0x203B
