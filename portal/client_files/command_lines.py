"""Secrets in a text of several words, as a shell gets one: of what it starts everything stays to be read.

Hidden is a word of which it is certain that it is the secret and where it ends, and in which a shell would see no
more than a word. Of what is left, `holds_secret` says whether anything was overlooked.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from portal.client_files.mixed_text import PLACE, Pieces
from portal.client_files.secret_looks import holds_secret, is_named, looks_secret, nameless
from portal.client_files.secret_names import is_secret_name
from portal.client_files.secret_urls import driver_pieces, url_pieces
from portal.client_files.variables import Secret, variable_name

_SHELL: Final = re.compile(
    r"(?:.*[/\\])?(?:(?:ba|da|z|k|fi|a|c|tc|mk|ya)?sh|busybox|(?P<cmd>cmd)|powershell|pwsh)(?:\.exe)?",
    re.IGNORECASE | re.DOTALL,
)
_CODE_FOLLOWS: Final = re.compile(
    r"-[abefhiklmnoprstuvx]{0,4}c[abefhiklmnoprstuvx]{0,4}|(?:/[a-z:]{1,9})*/[ckr]"
    r"|-comman?d?|-enc[a-z]{1,11}|--call",
    re.IGNORECASE,
)
_CODE_MAY_FOLLOW: Final = re.compile(r"(?i)-[a-z]*c[a-z]*|(?:--|/)command|--?en[a-z]*")
"""The same before a shell's first text, where the options are its own."""

_CHARACTER: Final = r"[^\s\"'\\,;&|$`<>(){}]"
_VALUE: Final = _CHARACTER + "{1,200}"
_ENDS: Final = r"(?![^\s;&|)])"
_CLOSES: Final = re.compile(r"[\"'](?:[\s,})\];&|]|\Z)")
"""A quote that ends a word: behind an apostrophe it goes on."""
_WORD: Final = re.compile(_CHARACTER + "+")
"""Nothing else to a shell, wherever it stands."""
_OPTION: Final = re.compile(
    rf"(?<![\w-])-{{1,2}}(?P<name>[A-Za-z](?:[\w.:-]{{0,58}}\w)?)\s{{1,9}}(?P<quote>[\"']?)(?!-)(?P<value>{_VALUE})"
    rf"(?P=quote){_ENDS}",
    re.ASCII,
)
_ASSIGNMENT: Final = re.compile(
    rf"(?<![\w-])-{{0,2}}(?P<name>[A-Za-z_][\w.-]{{0,59}})=(?P<quote>[\"']?)(?P<value>{_VALUE})(?P=quote)"
    r"(?![^\s;&|)\"'])",
    re.ASCII,
)
_SET: Final = re.compile(r"(?i)\bset\s{1,9}[\"']?\Z")
"""With this before it, Windows' value of a name goes on behind blanks."""
_QUOTED: Final = re.compile(
    rf"(?<![\w-])(?P<name>[A-Za-z_][\w-]{{0,59}})[\"']?\s{{0,9}}:\s{{0,9}}(?P<quote>[\"']?)"
    rf"(?:(?:bearer|basic|token)\s{{1,9}})?(?P<value>{_VALUE})(?={_CLOSES.pattern})",
    re.ASCII | re.IGNORECASE,
)
"""A header, or a member of JSON: quotes end its value."""
_SPOKEN: Final = re.compile(rf"(?i)\b(?:bearer|basic)\s{{1,9}}(?P<value>{_VALUE})(?![^\s;&|)\"'])")
_ADDRESS: Final = re.compile(r"[^\s\"'`<>|\\]{4,2000}")
_SCHEME_BEFORE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,29}\Z")
_ALONE: Final = re.compile(r"[^\s\"'\\,;&|$`<>(){}\[\]=]+={0,2}")
_APART: Final = re.compile(rf"(?<![^\s\"',=(\[]){_ALONE.pattern}(?![^\s\"',)\]])")
"""The same where `&` and `;` are no operators, but may be of the secret."""

_FILLED_IN: Final = re.compile(r"(?<![^\s\"'=:/,(])\$(?:\w+|\{\w+\})(?![^\s\"'@:;&|),?])")
"""All of a value, or the user or the password of an address: within a word a `$` may be one of a password."""
_PROGRAM: Final = re.compile(
    r"(?i:(?:bearer|basic|token)\s{1,9})?(?:\$\((?=[^)]{0,200}\))|`(?=[^`]{1,200}`))"
)
"""Where what a shell puts in begins: `$(gh auth token)`. It is no secret, and what runs is to be read."""
_NO_VALUE: Final = '"" '

_Found = tuple[int, Secret]
"""Where a secret begins, and it."""


def codes(words: Sequence[str], *, is_wide: bool = False) -> Iterator[bool]:
    """For each word of a command whether it is a text for a shell; `is_wide` takes it for one in case of doubt."""
    is_shell = is_code = is_before = False
    for before, word in pairwise(["", *words]):
        is_text = is_shell and is_code
        yield is_text
        # Between `-c` and its text may be options: `bash -c -o pipefail "…"`.
        is_option = word.startswith(("-", "+")) or re.fullmatch("[-+].*[oO]", before)
        is_code = is_code_next(word) or (is_text and bool(is_option)) or (is_before and _may_begin_code(word))
        is_new = bool(_SHELL.fullmatch(word))
        is_shell = is_shell or is_new
        is_before = is_wide and (is_new or (is_before and not is_text))


def _may_begin_code(option: str) -> bool:
    return bool(_CODE_MAY_FOLLOW.fullmatch(option)) and not is_secret_name(option)


def is_for_cmd(words: Sequence[str]) -> bool:
    """Whether no shell but cmd is among the words, or within one."""
    shells = (_SHELL.fullmatch(each) for word in words for each in re.split(r"[\s\"'&|]+", word))
    return all(shell["cmd"] for shell in shells if shell)


def is_code_next(option: str) -> bool:
    """Whether a shell takes what follows the option as code."""
    return bool(_CODE_FOLLOWS.fullmatch(option)) and not is_secret_name(option)


def is_word(value: str) -> bool:
    """Whether a shell could see no more in it than one word."""
    return bool(_WORD.fullmatch(value))


def is_program(value: str) -> bool:
    """Whether it begins with what a shell puts in."""
    return bool(_PROGRAM.match(value))


def line_pieces(text: str, *, is_code: bool) -> Pieces:
    """The text with its secrets; all of it as one, if there are any of which it is not certain where they end."""
    if not is_code and looks_secret(text) and not re.search(r"\s", text):
        return (nameless(text, "argument"),)
    hidden: list[_Found] = []
    is_free = bytearray(b"\1" * len(text))
    for start, secret in _found(text, is_code=is_code):
        end = start + len(secret.value)
        # Behind a $ no manifest could say it.
        if is_word(secret.value) and all(is_free[start:end]) and text[max(0, start - 1)] != "$":
            hidden.append((start, secret))
        is_free[start:end] = bytes(end - start)
    pieces = [*_split(text, sorted(hidden, key=lambda each: each[0]))]
    rest = "".join(piece if isinstance(piece, str) else PLACE for piece in pieces)
    rest = _FILLED_IN.sub(_filled_in, _PROGRAM.sub(_NO_VALUE, rest))
    return (nameless(text, "argument"),) if holds_secret(rest) else pieces


def _filled_in(variable: re.Match[str]) -> str:
    return variable[0] if looks_secret(variable[0]) else PLACE


def _split(text: str, hidden: Sequence[_Found]) -> Iterator[str | Secret]:
    end = 0
    for start, secret in hidden:
        yield text[end:start]
        yield secret
        end = start + len(secret.value)
    yield text[end:]


def _found(text: str, *, is_code: bool) -> Iterator[_Found]:
    """What is clearest first. Some may lie within others."""
    yield from _in_addresses(text)
    for pattern in (_OPTION, _QUOTED, *((_ASSIGNMENT,) if is_code else ())):
        for found in pattern.finditer(text):
            if is_named(found["name"], found["value"]) and _is_whole(found, is_code=is_code):
                yield found.start("value"), Secret(found["value"], variable_name(found["name"]))
    for found in _SPOKEN.finditer(text):
        if _is_whole(found, is_code=is_code):
            yield found.start("value"), Secret(found["value"], "TOKEN")
    for found in (_ALONE if is_code else _APART).finditer(text):
        if looks_secret(found[0]):
            yield found.start(), nameless(found[0], "argument")


def _is_whole(found: re.Match[str], *, is_code: bool) -> bool:
    """Whether it is certain that the value ends there: within quotes with them, elsewhere before the next word."""
    text, start, end = found.string, *found.span()
    after = text[end : end + 1]
    if after in (";", "&", "|") and not is_code:
        return False
    if found.re is _OPTION:
        return True
    if found.re is _ASSIGNMENT and after.isspace() and _SET.search(text[max(0, start - 20) : start]):
        return False
    if found.re is _QUOTED and found["quote"]:
        return after == found["quote"]
    quotes = [quote for quote in "'\"" if text.count(quote, 0, start) % 2]
    return after in quotes and bool(_CLOSES.match(text, end)) if quotes else after not in ("'", '"')


def _in_addresses(text: str) -> Iterator[_Found]:
    for found in _ADDRESS.finditer(text):
        before, mark, _ = found[0].partition("://")
        scheme = _SCHEME_BEFORE.search(before) if mark else None
        start = found.start() + (scheme.start() if scheme else 0)
        word = text[start : found.end()]
        pieces = [*((url_pieces(word, "URL") if scheme else driver_pieces(word, "DATABASE")) or ())]
        if text[found.end() : found.end() + 1] in ("'", '"') and not _CLOSES.match(text, found.end()):
            # No word, so that nothing of it is hidden for itself.
            pieces = [Secret(text[start : found.end() + 1], "URL")]
        for piece in pieces:
            if isinstance(piece, Secret):
                yield start, piece
                start += len(piece.value)
            else:
                start += len(piece)
