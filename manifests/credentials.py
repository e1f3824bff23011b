"""Which of the values that references filled in are credentials: they are taken out of results, settings are not.

A script works with the name of a bucket, so a variable is none unless something says so: its name, or what it is put
into; or its value itself, as a URL with a password does. What comes from a command or the keyring is one wherever it
stands, and so is all that is sent in a header. A folder that only goes on behind the reference is none, and neither
is what clearly says no more than where a database is, and who comes to it. Where that is not clear, it is one: a
script that lacks a name does not work, one that has a secret may tell it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from manifests.credential_names import is_credential_name, is_database_name, is_option, is_secret_name
from manifests.database_address import REFERENCE, is_part_of_address
from manifests.interpolation import NO_SECRETS
from manifests.json_value import Json
from manifests.references import Piece, VariableReference, pieces
from manifests.said_secrets import FOLDER, NAME_SAID, secrets_within
from manifests.secret_references import SecretReference

_OF_FOLDER: Final = re.compile(r"(?:ROOT|WORKSPACE|REPO|DIR|FOLDER|BASE)$", re.IGNORECASE)
"""A variable that says that it is one."""
_FILE: Final = re.compile(r"/(?:[\w.-]+/)*[\w.-]*\.[A-Za-z]\w{0,9}(?![\w./-])")
_IN_URL_WITH_HOST: Final = re.compile(r"://[^/\s]\S*\Z")

_SAID: Final = re.compile(NAME_SAID)
_IN_WHAT_IS_SAID: Final = re.compile(
    r"\s*[\"'\\]{0,3}(?:(?:basic|bearer|token)\s+)?[^\s\"'&;,]*", re.IGNORECASE
)
_FAR: Final = 300
"""Characters before a reference in which its name is looked for."""

_BEFORE_PASSWORD: Final = re.compile(r"://(?P<user>[^/?#@\s]*)$")
_AFTER_PASSWORD: Final = re.compile(r"(?P<rest>[^/?#@\s]*)@")


def credentials_of(
    upstream: Json, environ: Mapping[str, str], secrets: Mapping[SecretReference, str]
) -> frozenset[str]:
    """The credentials among what references filled in anywhere in a section of `upstreams`, given as it was written."""
    found = {
        secrets.get(each, "") if isinstance(each, SecretReference) else environ.get(each.name, "")
        for key, value in upstream.items()
        for name, text in _strings(value, key)
        for each in _to_credentials(list(pieces(text)), name, environ, is_header=key == "headers")
    }
    # Drivers show a URL otherwise than it was written.
    return frozenset(filter(None, found.union(*map(secrets_within, found))))


def _to_credentials(
    parts: list[Piece], name: str, environ: Mapping[str, str], *, is_header: bool
) -> Iterator[SecretReference | VariableReference]:
    for index, part in enumerate(parts):
        if isinstance(part, SecretReference):
            yield part
        elif isinstance(part, VariableReference) and part.name not in NO_SECRETS:
            before, after = _plain(parts[:index]), _plain(parts[index + 1 :])
            value = environ.get(part.name, "")
            if (is_header or any(secrets_within(value))) or (
                not _is_folder(part.name, value, before, after)
                and (
                    any(map(is_credential_name, (part.name, _said(before))))
                    or is_secret_name(name)
                    or (is_database_name(name) and not is_part_of_address(part.name, value, before, after))
                    or _is_login(before, after)
                )
            ):
                yield part


def _strings(value: Json, name: str) -> Iterator[tuple[str, str]]:
    """All strings, each with the name that it goes under: a key, or the option before it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, str(key))
    elif isinstance(value, list):
        option = ""
        for item in value:
            yield from _strings(item, option)
            option = item if isinstance(item, str) and is_option(item) else ""


def _plain(parts: list[Piece]) -> str:
    return "".join(part if isinstance(part, str) else REFERENCE for part in parts)


def _said(before: str) -> str:
    """The name behind which a text stands, at the end of `before`; "" if it stands behind none."""
    before = unquote(before[-_FAR:])
    *_, last = (None, *_SAID.finditer(before))
    return last["name"] if last and _IN_WHAT_IS_SAID.fullmatch(before, last.end()) else ""


def _is_login(before: str, after: str) -> bool:
    """Whether it is the password in a URL, or all that stands before its `@`: a user beside a password is none."""
    start, end = _BEFORE_PASSWORD.search(before), _AFTER_PASSWORD.match(after)
    return bool(start and end and (":" in start["user"] or ":" not in end["rest"]))


def _is_folder(variable: str, value: str, before: str, after: str) -> bool:
    """Whether it is clearly one, in which something lies: not if the variable says that it is a credential."""
    if is_secret_name(variable) or _IN_URL_WITH_HOST.search(before):
        return False
    if FOLDER.match(value) or (_OF_FOLDER.search(variable) and value.startswith("/")):
        return after.startswith(("/", "\\"))
    return value.startswith("/") and bool(_FILE.match(after))
