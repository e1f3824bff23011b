"""What of a server's texts is secret: by the name that it goes under, or by what it looks like.

Only a guess, made so that it errs towards secrets, but of what is started everything stays to be read.
`docs/import.md` says the rules.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from portal.client_files.command_lines import codes, is_program, line_pieces
from portal.client_files.mixed_text import Pieces, hidden
from portal.client_files.secret_looks import holds_secret, is_named, is_worth, looks_secret, nameless
from portal.client_files.secret_urls import driver_pieces, url_pieces
from portal.client_files.variables import Secret, Template, variable_name

_SCHEME: Final = re.compile(
    r"(?i)(?P<scheme>(?:bearer|basic|token|apikey|api-key|key)\s+)(?P<rest>\S.*)", re.DOTALL
)
_HEADER: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*)(?P<colon>:\s*)(?!//)(?P<value>\S.*)", re.DOTALL)
_FLAG: Final = re.compile(r"-++([^\s=]+)")
"""Whatever its name: .NET's have colons, `--Smtp:Password`, and npm's addresses, `--//x.example/:_authToken`."""
_SAID: Final = re.compile(
    r"(?P<name>-{0,2}[A-Za-z_][A-Za-z0-9_.-]*)=(?P<value>.*)|(?P<option>-{1,2}[A-Za-z][\w.-]*:\s*)(?P<rest>\S.*)",
    re.ASCII | re.DOTALL,
)
_HAS_OPTION: Final = re.compile(r"(?:^|\s)-{1,2}[A-Za-z]")


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
    return hidden(value, lambda text: url_pieces(text, "URL") or (text,))


def hidden_arguments(command: Template, arguments: Sequence[Template]) -> tuple[Template, ...]:
    """The arguments of a command: what follows `--api-key` or `--header`, stands behind `TOKEN=`, or looks secret."""
    words = [_literal(command), *map(_literal, arguments)]
    rows = zip(arguments, ["", *words[1:]], [*codes(words)][1:], strict=False)
    return tuple(
        hidden(each, _line if is_code else partial(_argument, before)) for each, before, is_code in rows
    )


def is_command_line(text: str) -> bool:
    """Whether a variable may say how to start something, as `NODE_OPTIONS` does."""
    return bool(_HAS_OPTION.search(text))


def _variable(name: str, text: str) -> Pieces:
    if is_named(name, text):
        return (Secret(text, variable_name(name), is_own=variable_name(name) == name),)
    if (pieces := url_pieces(text, name) or driver_pieces(text, name)) is not None:
        return pieces
    if not holds_secret(text):
        return (text,)
    pieces = [*line_pieces(text, is_code=False)] if is_command_line(text) else []
    return pieces if len(pieces) > 1 else (nameless(text, name),)


def _header(name: str, text: str) -> Pieces:
    if not is_named(name, text) and not (is_worth(text) and holds_secret(text)):
        return (text,)
    hint = variable_name("TOKEN" if name.lower() == "authorization" else name)
    if scheme := _SCHEME.fullmatch(text):
        is_any = is_worth(scheme["rest"])
        return (scheme["scheme"], Secret(scheme["rest"], hint)) if is_any else (text,)
    return (Secret(text, hint),)


def _argument(before: str, text: str) -> Pieces:
    if (flag := _FLAG.fullmatch(before)) and is_named(flag[1], text) and not _is_left(text):
        return (Secret(text, variable_name(flag[1])),)
    said = _SAID.fullmatch(text)
    if said and said["option"]:
        return (said["option"], *_optional(said["option"].strip(": -"), said["rest"]))
    if said and said["value"].strip("=") and not looks_secret(said["name"]) and not is_program(said["value"]):
        return (said["name"] + "=", *_said(said["name"].lstrip("-"), said["value"]))
    if (pieces := driver_pieces(text, flag[1] if flag else "DATABASE")) is not None:
        return pieces
    if line := _HEADER.fullmatch(text):
        return (line["name"] + line["colon"], *_header(line["name"], line["value"]))
    return url_pieces(text, "URL") or line_pieces(text, is_code=False)


def _optional(name: str, text: str) -> Pieces:
    if is_named(name, text):
        return _header(name, text)
    # The name of an option is none that the file gives a variable.
    return (nameless(text, name.lower()),) if is_worth(text) and holds_secret(text) else (text,)


def _line(text: str) -> Pieces:
    return line_pieces(text, is_code=True)


def _is_left(text: str) -> bool:
    """Whether it is the next option, or a URL, of which only a part is secret."""
    return (text.startswith("-") and len(text) > 1) or "://" in text


def _said(name: str, text: str) -> Pieces:
    is_open = not is_named(name, text) and driver_pieces(text, name) is None
    if is_open and (line := _HEADER.fullmatch(text)):
        return (line["name"] + line["colon"], *_header(line["name"], line["value"]))
    return _variable(name, text)


def _literal(value: Template) -> str:
    """The text; "" if anything in it is filled in later."""
    texts = [piece for piece in value if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(value) else ""
