"""Whether a person can read what a server starts, though its secrets are hidden."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from portal.client_files.command_lines import codes, is_word
from portal.client_files.fields import UnfitError
from portal.client_files.secret_names import is_secret_name
from portal.client_files.secret_values import is_command_line
from portal.client_files.servers import Server
from portal.client_files.variables import Secret, Template

HIDDEN = "what is hidden here of its command or its variables as a secret, that file shows: look at it there"
LONG = (
    "one of its texts is hidden as a whole, as nobody can tell where the secret in it ends: look at it there"
)

_STARTS: Final = re.compile(
    r"(?i)(?<![^_])(?:env|exec|execute|program|init|rc|ssh|args?|flags|wrapper|launcher|hooks?|browser)(?![^_])"
    r"|(?:command|cmd|options?|opts?|preload|path|startup|editor|pager|shell|askpass|libraries|lib|bus_address)\Z"
)
"""Names of variables of which programs take what to start, and how: BASH_ENV, GIT_SSH_COMMAND, LD_PRELOAD."""
_EXPANDS: Final = re.compile(r"\$\(|`")


def legible(server: Server) -> Server:
    """The same with a note where somebody must look at the file itself.

    Raises:
        UnfitError: Whoever wrote a project could hide a command in what would be taken for its secret.
    """
    if server.command is None:
        return server
    hidden = [*_hidden(server)]
    if server.origin.place.project is None:
        is_long = any(re.search(r"\s", value) for value in hidden)
        return replace(server, notes=(*server.notes, LONG)) if is_long else server
    if _secrets(server.command) or not all(map(is_word, hidden)) or any(_unreadable(server)):
        raise UnfitError(
            "a secret in it could as well be a command, which would be hidden: write it into portal.yaml yourself"
        )
    is_any = hidden or any(_secrets(each) for name, each in server.env.items() if _is_unsaid(name))
    return replace(server, notes=(*server.notes, HIDDEN)) if is_any else server


def _unreadable(server: Server) -> Iterator[bool]:
    """Of what starts something whether all of it is hidden."""
    words = ["".join(p for p in each if isinstance(p, str)) for each in (server.command or (), *server.args)]
    texts = zip(words[1:], [*codes(words)][1:], server.args, strict=True)
    yield from (
        is_code and bool(_secrets(each)) and not re.search(r"\w", word) for word, is_code, each in texts
    )
    for name, template in server.env.items():
        yield not is_secret_name(name) and any(map(is_command_line, _secrets(template)))


def _hidden(server: Server) -> Iterator[str]:
    """Where a command could be."""
    for argument in server.args:
        yield from _secrets(argument)
    for name, template in server.env.items():
        if _is_unsaid(name):
            yield from (each for each in _secrets(template) if _starts(name) or _is_command(each))


def _is_unsaid(name: str) -> bool:
    """Whether the name does not say alone why what goes under it is hidden."""
    return not is_secret_name(name) or _starts(name)


def _starts(name: str) -> bool:
    """Whether programs start what goes under it; of a secret's name the end says so: `SSH_PASSWORD` is one's."""
    *_, end = (0, *(found.end() for found in _STARTS.finditer(name)))
    return end == len(name) or (end > 0 and not is_secret_name(name))


def _is_command(text: str) -> bool:
    return is_command_line(text) or bool(_EXPANDS.search(text))


def _secrets(template: Template) -> list[str]:
    return [piece.value for piece in template if isinstance(piece, Secret)]
