"""How a client starts the portal, as its configuration says it."""

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from manifests.json_value import Json
from portal.client_files.merging import Variable
from portal.client_files.places import CLAUDE_CODE, VSCODE, Place

_PROGRAM: Final = "mcp-code-portal"
_FORMS: Final = {"braces": "${{{}}}", "dollar": "${}", "prefixed": "${{env:{}}}"}
"""How a client's file says a variable of the client's own environment."""

_FORMS_IF_SET: Final = {"braces": "${{{}:-}}"}
"""How some say one that may be lacking. Others may then start the portal with that very text as its value."""

INHERITED: Final = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "USER"})
"""What every client hands on to the servers that it starts, also those that start them with a bare environment."""


def portal_entry(
    place: Place, manifest: Path, variables: Sequence[Variable], defaulted: Sequence[str] = ()
) -> dict[str, Json]:
    """`variables` are those that the client is to hand on to the portal, `defaulted` others that it does without."""
    command, *first = program()
    entry: dict[str, Json] = {"type": "stdio"} if place.client in (VSCODE, CLAUDE_CODE) else {}
    entry |= {"command": command, "args": [*first, "serve", "--config", str(manifest)]}
    if place.client.is_toml and (variables or defaulted):
        entry["env_vars"] = [*(each.name for each in variables), *defaulted]
    elif variables or defaulted:
        form = _FORMS_IF_SET.get(place.client.style) or _FORMS[place.client.style]
        handed_on = {each.name: _handed_on(place, each) for each in variables}
        entry["env"] = handed_on | {name: form.format(name) for name in defaulted}
    return entry


def program() -> Sequence[str]:
    """The words that start this very portal, whatever PATH a client has."""
    told, beside = Path(sys.argv[0]), Path(sys.executable).with_name(_PROGRAM)
    for path in (told, beside):
        if path.name == _PROGRAM and path.exists():
            return (str(path.absolute()),)
    return (sys.executable, "-m", "portal")


def supplied(place: Place, needed: Sequence[Variable]) -> tuple[list[Variable], list[Variable]]:
    """Those of the variables that the client's file can hand on, and those that it cannot."""
    by_file = [each for each in needed if _is_by_file(place, each)]
    return by_file, [each for each in needed if each not in by_file]


def with_default(
    place: Place, names: Collection[str], environ: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Those of the variables with a default that the client's file can hand on, and those that are set but not handed
    on: a portal that the client starts would have their defaults.
    """
    is_safe = place.client.is_toml or place.client.style in _FORMS_IF_SET
    named = sorted(name for name in names if is_safe or name in environ)
    return (named, []) if is_safe or place.client.style in _FORMS else ([], named)


def _is_by_file(place: Place, variable: Variable) -> bool:
    if variable.input_id is not None:
        return place.name in variable.input_places
    return variable.value is None and (place.client.is_toml or place.client.style in _FORMS)


def _handed_on(place: Place, variable: Variable) -> str:
    if variable.input_id is not None:
        return f"${{input:{variable.input_id}}}"
    return _FORMS[place.client.style].format(variable.name)
