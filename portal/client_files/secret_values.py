"""Which values are secrets: by the name they go under, or by what they look like.

Only a guess, made so that it errs towards secrets: a value taken for one becomes a variable, which does no harm.
`docs/import.md` says the rules.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import unquote

from manifests.credentials import is_credential_name
from portal.client_files.addresses import driver_parts, has_password, url_parts
from portal.client_files.mixed_text import PLACE, Pieces, hidden
from portal.client_files.secret_names import is_secret_name
from portal.client_files.variables import Secret, Template, variable_name

_COUNT: Final = re.compile(r"\d{1,7}[\]}]*")
"""`tokens` with such a value are those of a text, perhaps where JSON ends: `CONTEXT_TOKENS=8000`."""
_TRIVIAL: Final = frozenset(("", "true", "false", "yes", "no", "on", "off", "none", "null", "0", "1"))
_KINDS_OF_LOGIN: Final = frozenset(("oauth", "oauth2", "oidc", "saml", "sso", "iam"))
"""Which `--auth` may say, and no password is."""

_KNOWN: Final = re.compile(
    r"(sk|pk|rk|fc|ntn|figd|figu|tvly|ctx7sk)[-_](?=\S*\d)[\w-]{12,}|gh[opusr]_\w{16,}|github_pat_\w{16,}"
    r"|glpat-[\w-]{12,}|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|(AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w.-]{10,}"
    r"|hf_\w{16,}|npm_\w{16,}|pypi-[\w-]{16,}|dop_v1_\w{16,}|shp[a-z]{2}_\w{16,}|SG\.[\w.-]{16,}"
    r"|lin_(api|oauth)_\w{12,}|eyJ[\w-]{8,}\.[\w-]{4,}(\.[\w-]*)?|ATATT[\w=-]{12,}|PMAK-[\w-]{12,}|whsec_\w{12,}"
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_DIGEST: Final = re.compile(r"(?:@sha256:|@|#)[0-9a-f]{40,64}$")
_PATH: Final = re.compile(r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:\\")
_HEX: Final = re.compile(r"[0-9a-fA-F]{32,}")
_RUN: Final = re.compile(r"[A-Za-z0-9]{20,}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+][A-Za-z0-9+/]{22,}={0,2}")
_LEAST_BITS: Final = 3.0
"""Shannon's entropy of one character: English words have less, random ones more."""

_FILLED_IN: Final = re.compile(r"\$(?:\w+|\{\w+\})|%\w+%")
_WORD: Final = re.compile(r"[^\s\"'<>{}\[\](),;\0]+")
_SPOKEN: Final = re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"']{6,}|-----BEGIN ")
_SAYS: Final = re.compile(r"[:=]")
_SAID_NAME: Final = re.compile(r"\s{0,9}[\"']?([A-Za-z_-]{1,60})")
"""A name as it stands before a colon, read backwards: a search forwards would try every letter."""
_SAID_VALUE: Final = re.compile(r"\s{0,9}[\"']?(?:(?:[Bb]earer|[Bb]asic)\s{1,9})?([^\s\"',;&]{1,60})")
_FLAG: Final = re.compile(
    r"(?<![\w-])-{1,2}([A-Za-z][\w.-]{0,59})[\"']?[\s,]{1,9}[\"']?(?!-)([^\s\"',;&]{1,60})", re.ASCII
)
"""An option with its value within one text: `npx server --token x`, `["--token", "x"]`."""
_WHOLE_OPTION: Final = re.compile(
    r"(?<![\w-])-{1,2}([A-Za-z][\w.-]{0,59})\s{1,9}([\"']?)(?!-)([^\s\"'\\,;&|$`]{1,200})\2(?!\S)", re.ASCII
)
"""One of which it is certain where its value ends."""
_PROGRAM: Final = re.compile(
    r"(?i:(?:bearer|basic|token)\s{1,9})?(?:\$\((?=[^)]{0,200}\))|`(?=[^`]{1,200}`))"
)
"""Where what a shell puts in begins: `$(gh auth token)`. It is no secret, and what runs is to be read."""
_NO_VALUE: Final = '"" '
_MOST_PARTS: Final = 200
"""Nobody looks through a URL of more."""

_SCHEME: Final = re.compile(
    r"(?i)(?P<scheme>(?:bearer|basic|token|apikey|api-key|key)\s+)(?P<rest>\S.*)", re.DOTALL
)


def looks_secret(word: str) -> bool:
    """Whether a word without blanks looks like a token, a key or a password that a machine made."""
    return any(map(_looks_secret, word.split(PLACE)))


def _looks_secret(word: str) -> bool:
    if _KNOWN.match(word) or _UUID.fullmatch(word) or _HEX.fullmatch(word):
        return True
    if _PATH.match(word):
        return False
    word = _DIGEST.sub("", word)  # which commit or image it is, is no secret
    if _BASE64.fullmatch(word) and _is_random(word):
        return word.count("/") <= len(word) // 16
    return any(_is_random(run) for run in _RUN.findall(word))


def holds_secret(text: str) -> bool:
    """Whether anywhere in a text is what looks like a secret, a login or the value of what is called a secret:
    `{"Authorization": "Bearer x"}`, `npx server --token x`.
    """
    return _says_secret(text) or any(map(looks_secret, _WORD.findall(text)))


def _says_secret(text: str) -> bool:
    """Whether there is no doubt, as there is of what only looks like one."""
    if _SPOKEN.search(text) or has_password(text) or any(map(_KNOWN.match, _WORD.findall(text))):
        return True
    return any(_is_named(name, value) for name, value in _said(text))


def _said(text: str) -> Iterator[tuple[str, str]]:
    """The names in a text that have a value behind a colon or an equals sign, or as an option, and those values."""
    yield from _FLAG.findall(text)
    for sign in _SAYS.finditer(text):
        before = text[max(0, sign.start() - 80) : sign.start()][::-1]
        name, value = _SAID_NAME.match(before), _SAID_VALUE.match(text, sign.end())
        if name and value:
            yield name[1][::-1], value[1]


def is_secret(name: str, value: str) -> bool:
    """Whether what goes under the name is one: by the name, or by what it looks like."""
    return any(isinstance(piece, Secret) for piece in _variable(name, value))


def hidden_variable(name: str, value: Template) -> Template:
    """An environment variable of a server, with what is secret in it as `Secret`."""
    return hidden(value, lambda text: _variable(name, text))


def hidden_header(name: str, value: Template) -> Template:
    """A header, with what is secret in it as `Secret`; the scheme, as in `Bearer …`, stays."""
    return hidden(value, lambda text: _header(name, text))


def hidden_url(value: Template) -> Template:
    """A URL, with passwords, tokens in its path, and secret parameters as `Secret`."""
    return hidden(value, lambda text: _url(text, "URL"))


def hidden_arguments(arguments: Sequence[Template]) -> tuple[Template, ...]:
    """The arguments of a command: what follows `--api-key` or `--header`, stands behind `TOKEN=`, or looks secret."""
    before = ["", *map(_literal, arguments)]
    return tuple(
        hidden(argument, partial(_argument, flag)) for flag, argument in zip(before, arguments, strict=False)
    )


def _variable(name: str, text: str) -> Pieces:
    if _is_named(name, text):
        return (Secret(text, variable_name(name), is_own=variable_name(name) == name),)
    if url_parts(text):
        return _url(text, name)
    if driver_parts(text):
        return _driver_address(text, name)
    return (_nameless(text, name),) if holds_secret(text) else (text,)


def _nameless(text: str, name: str) -> Secret:
    """A secret under a name that does not say so. Its variable's does, if there is no doubt, so that the portal takes
    the value out of results, and the file gives the variable no name itself. An id may only look like a secret.
    """
    own = variable_name(name)
    if own == name or is_credential_name(own) or not _says_secret(text):
        return Secret(text, own, is_own=own == name)
    return Secret(text, f"{own}_SECRET")


def _header(name: str, text: str) -> Pieces:
    if not _is_named(name, text) and not (_is_worth(text) and holds_secret(text)):
        return (text,)
    hint = variable_name("TOKEN" if name.lower() == "authorization" else name)
    if scheme := _SCHEME.fullmatch(text):
        is_worth = _is_worth(scheme["rest"])
        return (scheme["scheme"], Secret(scheme["rest"], hint)) if is_worth else (text,)
    return (Secret(text, hint),)


def _url(text: str, name: str) -> Pieces:
    parts = url_parts(text)
    if parts and sum(map(text.count, "/&;")) > _MOST_PARTS:
        return (Secret(text, variable_name(name)),)
    return _hidden_parts(parts, name) if parts else (text,)


def _driver_address(text: str, name: str) -> Pieces:
    parts = driver_parts(text)
    assert parts is not None
    user, password, rest = parts
    return (user, Secret(password, f"{variable_name(name)}_PASSWORD"), rest)


def _argument(before: str, text: str) -> Iterator[str | Secret]:
    if _is_flag(before) and "=" not in before and not _is_flag(text):
        flag = before.lstrip("-")
        if _is_named(flag, text) and "://" not in text:
            yield Secret(text, variable_name(flag))
            return
    flag, equals, rest = text.partition("=")
    if equals and re.fullmatch(r"-{0,2}[A-Za-z_][A-Za-z0-9_.-]*", flag) and not _PROGRAM.match(rest):
        yield flag + equals
        is_line = _HEADER.fullmatch(rest) and not driver_parts(rest)
        yield from _line(rest) if is_line else _variable(flag.lstrip("-"), rest)
    elif driver_parts(text):
        yield from _driver_address(text, "DATABASE")
    elif _HEADER.fullmatch(text):
        yield from _line(text)
    elif url_parts(text):
        yield from _url(text, "URL")
    else:
        yield from _command_line(text)


def _command_line(text: str) -> Pieces:
    """What else an argument may hold: a whole command, of which everybody should see what it starts."""
    pieces: list[str | Secret] = []
    end = 0
    for found in _WHOLE_OPTION.finditer(text):
        if _is_named(found[1], found[3]):
            pieces += text[end : found.start(3)], Secret(found[3], variable_name(found[1]))
            end = found.end(3)
    pieces.append(text[end:])
    rest = "".join(piece if isinstance(piece, str) else PLACE for piece in pieces)
    return (_nameless(text, "argument"),) if holds_secret(_PROGRAM.sub(_NO_VALUE, rest)) else pieces


_HEADER: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*)(?P<colon>:\s*)(?!//)(?P<value>\S.*)", re.DOTALL)


def _line(text: str) -> Pieces:
    """A header as one argument, `Authorization: Bearer x`."""
    line = _HEADER.fullmatch(text)
    assert line is not None
    return (line["name"] + line["colon"], *_header(line["name"], line["value"]))


def _hidden_parts(parts: re.Match[str], name: str) -> Iterator[str | Secret]:
    yield parts["scheme"]
    if parts["user"] is not None:
        user, colon, password = parts["user"].partition(":")
        is_token = bool(user) and (not colon or looks_secret(user)) and len(user) >= 8
        yield Secret(user, f"{variable_name(name)}_USER") if is_token else user
        yield colon
        yield Secret(password, f"{variable_name(name)}_PASSWORD") if password else ""
        yield "@"
    host, semicolon, parameters = parts["host"].partition(";")
    yield host + semicolon
    yield from _hidden_parameters(parameters, name)
    for index, segment in enumerate(parts["path"].split("/")):
        yield "/" if index else ""
        yield from _hidden_parameters(segment, name)
    for mark, text in (("?", parts["query"]), ("#", parts["fragment"])):
        if text is not None:
            yield mark
            for index, parameters in enumerate(text[1:].split("&")):
                yield "&" if index else ""
                yield from _hidden_parameters(parameters, name)


def _hidden_parameters(text: str, name: str) -> Iterator[str | Secret]:
    """`key=value`, or a text alone, and perhaps more of them behind semicolons."""
    parameters = text.split(";")
    for index, parameter in enumerate(parameters):
        yield ";" if index else ""
        key, equals, value = parameter.partition("=")
        hint = variable_name(unquote(key))
        if looks_secret(unquote(key)):
            yield Secret(parameter, f"{variable_name(name)}_KEY")
        elif _is_named(unquote(key), value):
            yield key + equals
            # Whether what follows is of the secret, nobody can tell.
            yield Secret(";".join([value, *parameters[index + 1 :]]), hint)
            return
        else:
            yield key + equals
            yield Secret(value, hint) if looks_secret(unquote(value)) else value


def _literal(value: Template) -> str:
    """The text; "" if anything in it is filled in later."""
    texts = [piece for piece in value if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(value) else ""


def _is_flag(text: str) -> bool:
    return text.startswith("-") and len(text) > 1


def _is_named(name: str, value: str) -> bool:
    """Whether what goes under the name is a secret by the name, whatever it looks like."""
    if name.lower().endswith("auth") and value.strip().lower() in _KINDS_OF_LOGIN:
        return False
    return _is_worth(value) and is_secret_name(name, is_count=bool(_COUNT.fullmatch(value.strip())))


def _is_worth(value: str) -> bool:
    """Whether a value under a secret's name can be one; `${NAME}`, which the server fills in itself, is none."""
    value = value.replace(PLACE, "")
    return value.strip().lower() not in _TRIVIAL and not _FILLED_IN.fullmatch(value)


def _is_random(run: str) -> bool:
    """Letters and digits mixed as words are not."""
    counts = Counter(run)
    bits = -sum(n / len(run) * math.log2(n / len(run)) for n in counts.values())
    kinds = (any(map(str.isdigit, run)), any(map(str.islower, run)), any(map(str.isupper, run)))
    return bits >= _LEAST_BITS and kinds[0] and sum(kinds) >= 2
