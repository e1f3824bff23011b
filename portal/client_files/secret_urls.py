"""Secrets in addresses: passwords, tokens in a path, and parameters whose name says that they are one."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from portal.client_files.addresses import driver_parts, login_parts, url_parts
from portal.client_files.mixed_text import Pieces
from portal.client_files.secret_looks import is_named, looks_secret, says_secret
from portal.client_files.variables import Secret, variable_name

_MOST_PARTS: Final = 200
"""Nobody looks through a URL of more."""
_CONNECTION: Final = re.compile(
    r"(?i)dsn$|conn(?:ection)?[_-]?str(?:ing)?$|(?:oracle|db|database)[_-]?ur[il]$"
)
_WEB: Final = re.compile(r"(?i)(?:git\+)?https?://")
_OF_SEVERAL: Final = re.compile(r"\s*[\[{]|[A-Za-z][\w+.-]*://")
"""JSON, or another URL, as a parameter's value."""
_TOKEN_AS_USER: Final = re.compile(r"(?=.*\d).{8,}", re.DOTALL)
"""On the web, where people have names without digits or a password."""


def url_pieces(text: str, name: str) -> Pieces | None:
    """A URL in pieces, found under the name; None if the text is none."""
    parts = url_parts(text)
    if parts and sum(map(text.count, "/&;")) > _MOST_PARTS:
        return (Secret(text, variable_name(name)),)
    return _hidden_parts(parts, name) if parts else None


def driver_pieces(text: str, name: str) -> Pieces | None:
    """The same of an address with a password, as drivers of databases take it."""
    parts = driver_parts(text, is_connection=bool(_CONNECTION.search(name))) or login_parts(text, name)
    if parts is None:
        return None
    user, password, rest = parts
    return (user, Secret(password, f"{variable_name(name)}_PASSWORD"), rest)


def _hidden_parts(parts: re.Match[str], name: str) -> Iterator[str | Secret]:
    yield parts["scheme"]
    if parts["user"] is not None:
        user, colon, password = parts["user"].partition(":")
        is_token = looks_secret(user) or _is_token_alone(parts["scheme"], user, colon)
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
        elif is_named(unquote(key), value):
            yield key + equals
            # Whether what follows is of the secret, nobody can tell.
            yield Secret(";".join([value, *parameters[index + 1 :]]), hint)
            return
        else:
            yield key + equals
            yield _hidden_value(value, hint)


def _hidden_value(value: str, hint: str) -> str | Secret:
    text = unquote(value)
    if _OF_SEVERAL.match(text) and says_secret(text):
        return Secret(value, f"{hint}_SECRET")
    return Secret(value, hint) if looks_secret(text) else value


def _is_token_alone(scheme: str, user: str, colon: str) -> bool:
    return not colon and bool(_WEB.match(scheme) and _TOKEN_AS_USER.fullmatch(user))
