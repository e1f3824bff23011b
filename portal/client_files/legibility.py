"""Whether a person can read what a server starts, though its secrets are hidden."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from manifests.credential_names import is_credential_name
from portal.client_files.command_lines import codes, is_code_next, is_for_cmd, is_word
from portal.client_files.fields import UnfitError
from portal.client_files.secret_names import is_secret_name
from portal.client_files.secret_values import is_command_line
from portal.client_files.servers import UNKNOWN_URL, Server
from portal.client_files.variables import Input, Piece, Reference, Secret, Template

HIDDEN = (
    "what is hidden here of its command, address or variables as a secret, that file shows: look at it there"
)
LONG = (
    "one of its texts is hidden as a whole, as nobody can tell where the secret in it ends: look at it there"
)

_STARTS: Final = re.compile(
    r"(?i)(?<![^_])(?:env|exec|execute|program|init|rc|ssh|args?|flags|wrapper|launcher|hooks?|browser)(?![^_])"
    r"|(?:commands?|cmd|config_value_\d{1,5}|options?|opts?|preload|path|startup|editor|pager|shell|askpass|libraries"
    r"|lib|bus_address)\Z"
)
"""Names of variables of which programs take what to start, and how: BASH_ENV, GIT_SSH_COMMAND, LD_PRELOAD."""
_CALLING: Final = re.compile(r"(?i)(?:.*[/\\])?(?:(?P<node>npx|npm)|su|runuser|script)(?:\.cmd)?")
"""Which give what follows their `-c` to a shell."""
_EXPANDS: Final = re.compile(r"\$\(|`")
_COMPOSED: Final = re.compile(r"[|<;&(`\n]")
"""In a text for a shell that does more than to start one program: `$(gh auth token)`."""
_VARIABLE: Final = re.compile(r"(?i)(?:\$[{=]{0,2}(?:env[:.])?|[%!])(?P<name>\w+)")
_WITHIN_NAMES: Final = re.compile(r"\\\r?\n|[\"'^]")
"""What a shell takes out of a text before it looks for variables in it."""
_SPOKEN: Final = re.compile(r"(?i)\A(?:bearer|basic|token) ")
_OF_WHAT: Final = re.compile(
    r"(?i)(?:[=:]|:[ \t]|://|(?<!\S)(?P<option>-{1,2}[a-z][\w.:-]{0,60})[ \t]{1,9}"
    r"|\b(?:bearer|basic|token)[ \t])\\*[\"']?\Z"
)
"""What stands before a variable in a text for a shell if it is the value of something, and nothing that is run."""
_UNSEEN: Final = "_"
_BEGINNING: Final = re.compile(r"[^\s/?#\\\"']*")
"""Of an address behind `://` what is still no path."""
_LOGIN: Final = re.compile(r"[^\s/?#\\\"']*@")
_NO_LOGIN: Final = re.compile(r"[/?#\\@]")
"""With these in a password some would find the host within it, others behind it."""
_SCHEME: Final = re.compile(r"[A-Za-z0-9+.-]*://")
_LOCAL: Final = re.compile(
    r"(?i)(?:[\w.-]{1,60}=)?[a-z][a-z0-9+.-]{0,30}://(?:[^\s/?#@\\;]*@)?"
    r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|host\.docker\.internal)(?::\d{1,5})?(?:/[\w./-]*)?"
    r"(?:\?(?:schema|ssl(?:mode)?)=\w{1,60})?"
)
"""All of an address on this machine. With other parameters drivers of databases are led elsewhere: `?host=`."""
_WEB: Final = re.compile(r"(?i)(?:https?|wss?)\Z")


def legible(server: Server) -> Server:
    """The same with a note where somebody must look at the file itself.

    Raises:
        UnfitError: Whoever wrote a project could hide a command, or a host, in what would be taken for its secret.
    """
    hidden = [*_hidden(server)]
    if server.origin.place.project is None:
        is_long = any(re.search(r"\s", value) for value in hidden)
        return replace(server, notes=(*server.notes, LONG)) if is_long else server
    if _secrets(server.command or ()) or not all(map(is_word, hidden)) or any(_unreadable(server)):
        raise UnfitError(
            "a secret in it could as well be a command, which would be hidden: write it into portal.yaml yourself"
        )
    if _hides_host(server.url or (), is_url=True) or (_has_own(server) and any(_misleading(server))):
        raise UnfitError(
            "a secret in it could as well say where an address leads, which would be hidden: write it into "
            "portal.yaml yourself"
        )
    of_variables = (
        _is_unsaid(name) or "://" in secret for name, each in server.env.items() for secret in _secrets(each)
    )
    is_named = any(_named(server, _texts(server)))
    is_any = hidden or _secrets(server.url or ()) or any(of_variables) or is_named
    server = server.with_names_of_project() if any(_misleading(server)) else server
    return replace(server, notes=(*server.notes, HIDDEN)) if is_any else server


def _unreadable(server: Server) -> Iterator[bool]:
    """Of what starts something whether all of it is hidden."""
    for word, template in _code(server):
        yield bool(_secrets(template)) and not re.search(r"\w", word)
    yield from (_is_run(found, secrets) for found, secrets in _named(server, _shell_texts(server)))
    for _, templates in _named(server, _texts(server)):
        yield not all(is_word(_SPOKEN.sub("", secret)) for each in templates for secret in _secrets(each))
    for name, template in server.env.items():
        yield not is_secret_name(name) and any(map(is_command_line, _secrets(template)))


def _code(server: Server) -> Iterator[tuple[str, Template]]:
    """Texts for a shell: what of each is not hidden, and all of it."""
    yield from ((word, template) for word, is_code, template in _words(server) if is_code)


def _words(server: Server) -> Iterator[tuple[str, bool, Template]]:
    """Of each argument what is not hidden, whether it is a text for a shell, and all of it."""
    words = ["".join(p for p in each if isinstance(p, str)) for each in (server.command or (), *server.args)]
    calling = _CALLING.fullmatch(words[0])
    is_code = codes(["sh" if calling else words[0], *words[1:]], is_wide=not (calling and calling["node"]))
    yield from zip(words[1:], [*is_code][1:], server.args, strict=True)


def _shell_texts(server: Server) -> Iterator[str]:
    """Each text for a shell, and all of them with what follows as one, as cmd and PowerShell read it."""
    program, *words = ("".join(map(_visible, each)) for each in (server.command or (), *server.args))
    if is_for_cmd([program, *words]) and not _CALLING.fullmatch(program):
        words = [word.replace("$", "_") for word in words]  # names no variable there
    is_code = [is_code for _, is_code, _ in _words(server)]
    yield from (word for word, is_code in zip(words, is_code, strict=True) if is_code)
    yield from (" ".join(words[is_code.index(True) :]),) if any(is_code) else ()


def _texts(server: Server) -> Iterator[str]:
    """All in which some program could look for variables, as it would."""
    for template in (*server.args, *server.env.values()):
        yield _WITHIN_NAMES.sub("", "".join(map(_visible, template)))


def _named(server: Server, texts: Iterable[str]) -> Iterator[tuple[re.Match[str], Sequence[Template]]]:
    """Where the texts name variables of which something is hidden, and what these are."""
    hidden: dict[str, list[Template]] = {}
    for name, template in server.env.items():
        if _secrets(template):
            # In small letters, as Windows compares them.
            hidden.setdefault(name.lower(), []).append(template)
    for text in texts:
        for found in _VARIABLE.finditer(text):
            if templates := hidden.get(found["name"].lower()):
                yield found, templates


def _is_run(found: re.Match[str], templates: Sequence[Template]) -> bool:
    """Whether a shell could run what is hidden of a variable where its text names it."""
    before = _OF_WHAT.search(found.string[max(0, found.start() - 100) : found.start()])
    is_value = before is not None and not (before["option"] and is_code_next(before["option"]))
    is_harmless = is_value or all(map(_is_address, templates))
    return not (is_harmless and all(is_word(secret) for each in templates for secret in _secrets(each)))


def _is_address(template: Template) -> bool:
    """Whether it begins as an address, to be read, and is a single word to a shell, whatever is hidden of it."""
    first = next(iter(template), "")
    is_begun = isinstance(first, str) and bool(_SCHEME.match(first))
    return is_begun and is_word("".join(map(_visible, template)))


def _has_own(server: Server) -> bool:
    """Whether it gets a secret of the person's own: a variable of theirs, or what another program tells a shell."""
    own = (
        isinstance(piece, Input)
        or (
            isinstance(piece, Reference)
            and (not piece.default or is_secret_name(piece.name) or is_credential_name(piece.name))
        )
        for piece in server.pieces()
    )
    return any(own) or any(map(_COMPOSED.search, _shell_texts(server)))


def _misleading(server: Server) -> Iterator[bool]:
    """Of the arguments and variables that lead somewhere whether that is hidden."""
    yield from map(_hides_host, server.args)
    for name, template in server.env.items():
        yield _is_unsaid(name) and _hides_host(template)


def _hides_host(template: Template, *, is_url: bool = False) -> bool:
    """Whether a secret is all of an address, of its scheme or its host, or could be taken for the host."""
    pieces = [piece for piece in template if piece]
    texts = [*map(_visible, pieces)]
    if is_url and pieces and isinstance(pieces[0], Reference | Input) and texts[0] == _UNSEEN:
        texts[0] = UNKNOWN_URL
    text, end = "".join(texts), 0
    for piece, visible in zip(pieces, texts, strict=True):
        start, end = end, end + len(visible)
        if isinstance(piece, Secret) and _is_of_host(piece.value, text, start, end, is_url=is_url):
            return True
    return False


def _is_of_host(secret: str, text: str, start: int, end: int, *, is_url: bool) -> bool:
    mark = text.rfind("://", 0, start)
    if not is_url and end == len(text) and _LOCAL.fullmatch(text[:start] + secret):
        return False
    if "://" in text[max(0, start - 2) : start] + secret or _SCHEME.match(text, end) or (is_url and mark < 0):
        return True
    if mark < 0 or not _BEGINNING.fullmatch(text, mark + 3, start):
        return False
    # Behind a semicolon drivers of databases have parameters, and the web's addresses still the host.
    is_parameter = ";" in text[mark:start] and not _WEB.search(text[max(0, mark - 5) : mark])
    return not (is_parameter or _LOGIN.match(text, end)) or bool(_NO_LOGIN.search(secret))


def _visible(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    return piece.default or _UNSEEN if isinstance(piece, Reference) else _UNSEEN


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
