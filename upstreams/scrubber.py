"""Keeps configured secrets out of what people and models read.

What is cut is scrubbed before: half a secret is one, too.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import unquote

from manifests.said_secrets import passwords_in, secrets_within, words_said
from manifests.upstream_sections import HttpUpstream, StdioUpstream
from upstreams.configured_secrets import ConfiguredSecrets
from upstreams.passages import Place
from upstreams.secret_spellings import Spelling, Spellings, as_one, spellings_of
from upstreams.wire_text import one_line

LONGEST_TOLD: Final = 2_000
"""Of an error or a reason no more characters are told."""

_SHORTEST: Final = 4  # a shorter value hides nothing and would riddle every message
_SHORTEST_LINE: Final = 8
_MOST_PASSING: Final = 100
_MOST_WORK: Final = 10_000
"""Some milliseconds, for which all others wait. A text with which it takes longer is hidden as a whole: where hundreds
of secrets are made of the same few words, and the text is, too.
"""
_MOST_WORK_OF_CONTENT: Final = 4
"""Of each character; in a thread, so that others wait for nothing."""
_MASK: Final = "[hidden]"
_LONGEST_WORD: Final = 15
"""What is longer is no part of another word by chance."""
_BARE: Final = re.compile(r"[-+.\deE]+|true|false|fals|alse|null")
"""What stands in JSON without quotation marks: without it that were none."""
_PEM_EDGE: Final = re.compile(r"\s*-----(?:BEGIN|END) [A-Z0-9 ]+-----\s*")
_ESCAPE_BEFORE: Final = re.compile(
    r"(?:\\[a-z]|\\[ux][0-9a-fA-F]{2,8}|%[0-9a-fA-F]{2}|(?:\x1b|\\u001[bB]|\\x1[bB]|\\033)\[[\d;]{0,12}[A-Za-z])\Z"
)
"""Of JSON, Python or a URL, or what gives a terminal its colours."""

Forms: TypeAlias = Mapping[str, Spelling]
"""What is hidden, and all its spellings."""

_NONE: Final[Forms] = MappingProxyType({})


class Scrubber:
    """Replaces secrets wherever they occur: of an upstream's `env` and `headers`, in its URLs, and all others it is
    told of, whole and line by line, however JSON, Python and URLs spell them."""

    def __init__(
        self,
        secrets: Iterable[str],
        settings: Iterable[str] = (),
        more_forms: Forms = _NONE,
        words: Iterable[str] = (),
    ) -> None:
        """`settings` may be secrets, and may be words like `production`: see `content`. `words` are such for sure, and
        are hidden where they are no part of another, if they are short."""
        secrets, settings = [*secrets], [*settings]
        self._secrets = {**forms_of(secrets), **more_forms}
        self._settings = forms_of([*settings, *chain(*map(passwords_in, secrets + settings))])
        self._words = forms_of([*words, *chain(*map(words_said, secrets + settings))])
        self._passing: dict[str, Spelling] = {}
        self._gather()

    @classmethod
    def for_upstream(cls, spec: StdioUpstream | HttpUpstream, more_forms: Forms = _NONE) -> "Scrubber":
        """`more_forms` are those of other secrets, made once for all upstreams."""
        configured = ConfiguredSecrets.of(spec)
        return cls(configured.certain, configured.settings, more_forms, configured.words)

    def hide_for_now(self, secrets: Iterable[str]) -> None:
        """Hide these, too, until a hundred others came after them: tokens that are renewed again and again."""
        for form, spelling in sorted(forms_of(secrets).items()):
            self._passing.pop(form, None)
            self._passing[form] = spelling
        for form in list(self._passing)[:-_MOST_PASSING]:
            del self._passing[form]
        self._gather()

    def _gather(self) -> None:
        certain = {**self._secrets, **self._passing}
        anywhere = {**certain, **self._settings}
        anywhere |= {form: each for form, each in self._words.items() if len(form) > _LONGEST_WORD}
        words = (each for form, each in self._words.items() if form not in anywhere)
        self._content = Spellings(each for form, each in certain.items() if not _BARE.fullmatch(form))
        self._all = [Spellings(anywhere.values()), Spellings(words, _is_word)]
        self._longest = max(each.longest for each in self._all)

    def __call__(self, text: str) -> str:
        return _without(text, self._places(text, len(text)))

    def _places(self, text: str, last: int) -> list[Place]:
        anywhere, words = (each.places(text, last, _MOST_WORK) for each in self._all)
        return as_one([*anywhere, *words])

    def content(self, text: str) -> str:
        """The same for text that is worked with: settings are not hidden, and nothing that stands in JSON as it is."""
        most_work = _MOST_WORK + _MOST_WORK_OF_CONTENT * len(text)
        return _without(text, self._content.places(text, most_work=most_work))

    def start(self, text: str, limit: int = LONGEST_TOLD) -> str:
        """What is told of a text that may be long: no more than its first `limit` characters."""
        places = self._places(text, limit)
        end = max([limit, *(stop for _, stop in places)])
        return _without(text[:end], places) + ("…" if end < len(text) else "")

    def excerpt(self, text: bytes, limit: int = 120) -> str:
        """The same of what a stranger sent: in one line, printable."""
        # A character takes up to four bytes.
        head = text.lstrip()[: 4 * (limit + self._longest)]
        return one_line(self.start(head.decode("utf-8", "replace").strip(), limit))


def _without(text: str, places: Iterable[Place]) -> str:
    kept, kept_to = [], 0
    for start, stop in places:
        kept += [text[kept_to:start], _MASK]
        kept_to = stop
    return "".join([*kept, text[kept_to:]])


def _is_word(text: str, start: int, stop: int) -> bool:
    """Whether no letter or digit of English stands beside it, but those of an escape."""
    before = text[max(0, start - 20) : start]
    is_glued = _are_one_word(before[-1:], text[start]) and not _ESCAPE_BEFORE.search(before)
    return not is_glued and not _are_one_word(text[stop - 1], text[stop : stop + 1])


def _are_one_word(one: str, other: str) -> bool:
    return one.isalnum() and other.isalnum() and one.isascii() and other.isascii()


def forms_of(secrets: Iterable[str]) -> dict[str, Spelling]:
    """What is hidden of secrets: they themselves, their lines, the passwords and tokens in them, and what they
    are behind the quoting of a URL; of these all that are long enough."""
    forms = {form for secret in secrets for form in _forms(secret)}
    return spellings_of(form for form in forms if len(form) >= _SHORTEST and not form.isspace())


def _forms(secret: str) -> set[str]:
    in_lines = secret.replace("\\n", "\n") if "-----BEGIN" in secret else secret
    lines = (
        line
        for line in in_lines.splitlines()
        if len(line) >= _SHORTEST_LINE and not _PEM_EDGE.fullmatch(line)
    )
    within = [*secrets_within(secret)]
    return {secret, unquote(secret), *lines, *within, *map(unquote, within)}
