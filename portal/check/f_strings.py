"""Makes scripts readable for Pythons older than the sandbox's, which do not know its f-strings yet.

Since 3.12 an f-string may hold its own quotes, `f"{issue["title"]}"`. Here each one becomes an f-string of the
same length that holds nothing, so that all else keeps its place.
"""

import re
from typing import Final

# Of a word before a quote all but what may be its prefix is one token: no letter of it is looked at again and again.
_TOKEN: Final = re.compile(
    r"""\#[^\n]*|\w+(?!['"\w])|\w+(?=\w{3}['"])|[^\w\#'"]+"""
    r"""|(?P<prefix>[A-Za-z]{0,3})(?P<quote>\"{3}|'{3}|"|')|.""",
    re.DOTALL,
)
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_MAX_DEPTH: Final = 50


def without_f_strings(source: str) -> str:
    """The source with every f-string emptied; it need not be Python."""
    parts = []
    at = 0
    while at < len(source):
        token = _TOKEN.match(source, at)
        assert token is not None
        end = token.end()
        if token["quote"]:
            end = _string_end(source, token, 0)
            if _is_formatted(token["prefix"]):
                parts.append(_emptied(source[at:end], token["prefix"], token["quote"]))
                at = end
                continue
        parts.append(source[at:end])
        at = end
    return "".join(parts)


def _is_formatted(prefix: str) -> bool:
    return bool(set("fFtT") & set(prefix))


def _emptied(text: str, prefix: str, quote: str) -> str:
    start = len(prefix) + len(quote)
    inside = text[start : -len(quote)] if text.endswith(quote) else text[start:]
    kept = prefix.replace("t", "f").replace("T", "F") + quote
    return kept + "".join(each if each == "\n" else "x" for each in inside) + text[start + len(inside) :]


def _string_end(source: str, token: "re.Match[str]", depth: int) -> int:
    """Where the string that begins with this token ends; the end of the source, if it does not."""
    at, quote, is_formatted = token.end(), token["quote"], _is_formatted(token["prefix"])
    while at < len(source):
        if source.startswith(quote, at):
            return at + len(quote)
        if source[at] == "\n" and len(quote) == 1:
            return at
        if source[at] == "\\":
            at += 2
        elif is_formatted and source[at] == "{" and not source.startswith("{{", at):
            at = _field_end(source, at + 1, depth + 1)
        else:
            at += 2 if is_formatted and source.startswith("{{", at) else 1
    return len(source)


def _field_end(source: str, at: int, depth: int) -> int:
    """Where the replacement field that begins here ends, behind its brace."""
    awaited = ["}"]
    is_spec = False
    while at < len(source) and awaited and depth <= _MAX_DEPTH:
        each = source[at]
        if not is_spec and (each.isalnum() or each in "_#'\""):
            token = _TOKEN.match(source, at)
            assert token is not None
            at = _string_end(source, token, depth) if token["quote"] else token.end()
            continue
        at += 1
        if each in _CLOSING and not is_spec:
            awaited.append(_CLOSING[each])
        elif each == "{":
            at = _field_end(source, at, depth + 1)
        elif each == awaited[-1]:
            awaited.pop()
        elif each == ":" and len(awaited) == 1:
            is_spec = True
    return at
