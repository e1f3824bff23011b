"""Which characters show nothing or reorder others, and which of these only shape what is seen beside them.

Emoji are joined and coloured by characters that are invisible by themselves, and Persian, Sinhala or Khmer cannot be
written without some: one of them, where it has something to shape, hides nothing. Anywhere else, and in runs, it does.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co"})
# Of other categories, and show nothing all the same; variation selectors are the ranges.
_BLANK: Final = frozenset(
    {
        *"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U00016fe4\U0001d159",
        *map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
    }
)
_VARIANTS: Final = "\ufe0e\ufe0f"
_ZERO_WIDTH_SPACE, _NON_JOINER, _JOINER = "\u200b\u200c\u200d"
_KEYCAP: Final = "\u20e3"
_SYMBOLS: Final = frozenset({"So", "Sm"})
# Signs that are no symbols above U+203B, and all of where emoji are added, colours of skin among them.
_OTHER_EMOJI: Final = re.compile("[\u00a9\u00ae\u203c\u2049\u2139\u3030\u303d\U0001f000-\U0001faff]")
# Where emoji and Chinese characters are added: Python learns of them years after everybody has them.
_NEWCOMERS: Final = re.compile("[\U0001f000-\U0001faff\U00020000-\U0002fffd\U00030000-\U0003fffd]")
# Only these three are recommended: of any other sequence of tags nothing is seen but a black flag.
_FLAG: Final = re.compile(
    "\U0001f3f4(?:\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073))\U000e007f"
)
_FLAG_LENGTH: Final = 7
# Arabic to Samaritan, what is written in India, Tibet, Burma, Cambodia and Mongolia, and the forms of Arabic.
_JOINING: Final = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u1c4f\u1cd0-\u1cff\ua800-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010fff\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
# Thai, Lao, Burmese and Khmer have no spaces between words.
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\uaa60-\uaadf]")
_VIRAMA: Final = 9
_MONGOLIAN: Final = re.compile("[\u1820-\u18aa]")
_SHAPING_MONGOLIAN: Final = "\u180b\u180c\u180d\u180e\u180f"
_SEEN_FORMATS: Final = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
"""Signs around numbers, which Unicode counts among what is hidden."""


def is_hidden(character: str) -> bool:
    """Whether a character shows nothing, or changes how others are shown."""
    if character in _BLANK:
        return True
    category = unicodedata.category(character)
    return category in _HIDDEN_CATEGORIES or (category == "Cn" and not _NEWCOMERS.fullmatch(character))


def is_hidden_at(text: str, index: int) -> bool:
    """Whether the character there is hidden, and does not only shape what is seen beside it."""
    return is_hidden(text[index]) and not _is_shaping(text, index)


def respelt(text: str, spell: Callable[[str], str], exactly: range = range(0)) -> str:
    """The text with everything that is hidden in it, or ends a line, as `spell` writes it; at the places of `exactly`
    also what only shapes something.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        spell(character)
        if character in "\u2028\u2029"
        or is_hidden_at(text, index)
        or (index in exactly and is_hidden(character))
        else character
        for index, character in enumerate(text)
    )


def _is_shaping(text: str, index: int) -> bool:
    character, before, after = text[index], text[max(0, index - 1) : index], text[index + 1 : index + 2]
    if character in _VARIANTS:
        return _is_emoji(before) or (before in "0123456789#*" and before != "" and after == _KEYCAP)
    if character == _JOINER and _is_emoji(after):
        coloured = before == "\ufe0f" and index > 1
        return _is_emoji(text[index - 2] if coloured else before)
    if character in (_JOINER, _NON_JOINER):
        ends_half = character == _JOINER and before != "" and unicodedata.combining(before) == _VIRAMA
        return ends_half or (_is_letter(before, _JOINING) and _is_letter(after, _JOINING))
    if character == _ZERO_WIDTH_SPACE:
        return _is_letter(before, _UNSPACED) and _is_letter(after, _UNSPACED)
    if character in _SHAPING_MONGOLIAN:
        return bool(_MONGOLIAN.fullmatch(before))
    return character in _SEEN_FORMATS or _is_in_flag(text, index)


def _is_emoji(character: str) -> bool:
    """Whether a character is an emoji, or another sign that may become one."""
    if _OTHER_EMOJI.fullmatch(character):
        return True
    return character > "\u203b" and unicodedata.category(character) in _SYMBOLS and character not in _BLANK


def _is_letter(character: str, script: re.Pattern[str]) -> bool:
    return bool(script.fullmatch(character)) and unicodedata.category(character)[0] in "LM"


def _is_in_flag(text: str, index: int) -> bool:
    flag = _FLAG.search(text, max(0, index - _FLAG_LENGTH + 1), index + _FLAG_LENGTH)
    return flag is not None and flag.start() < index < flag.end()
