"""Output for people: results on stdout, progress and errors on stderr, colours only on a terminal.

All output passes through here. Most of it contains untrusted names, descriptions and errors, so it is escaped. It
cannot control the terminal, hide characters, or imitate a line of the portal.
"""

import getpass
import io
import json
import os
import shlex
import sys
import webbrowser
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manifests.json_value import Json
from portal.base.plain_text import escaped, marked_lines, some

if TYPE_CHECKING:  # they take a second to import
    from manifests.grants import Hints
    from manifests.manifest import Manifest
    from upstreams.fleet import Fleet

_PIPE_COLUMNS: Final = 1000  # a row is one line there
_QUIET_SECONDS: Final = 2.0
_MAX_NAMED: Final = 20


class Terminal:
    """The two streams of one command. NO_COLOR and TERM=dumb are honoured."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _PIPE_COLUMNS
        self._out = _Stdout(highlight=False, soft_wrap=True, emoji=False, width=width)
        self._err = _Stderr(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # The stream's encoding may lack some characters.
            sys.stdout.reconfigure(errors="backslashreplace")

    @property
    def is_watched(self) -> bool:
        """Whether a person reads stderr."""
        return self._err.is_terminal

    def result(self, text: str) -> None:
        """Print data with any number of lines: unchanged to a pipe, escaped on a terminal."""
        if sys.stdout.isatty():
            text = escaped(text.replace("\r\n", "\n"), keep="\n\t")
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()

    def json(self, value: Json) -> None:
        self.result(json.dumps(value, ensure_ascii=False, indent=2))

    def line(self, text: str, style: str = "") -> None:
        self._out.print(Text(escaped(text), style=style))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], whole: int = 0) -> None:
        """Print rows under column names. Numbers are right-aligned. With `whole`, each row is one line, in which only
        the cells behind the first `whole` are cut.
        """
        rows = [*rows]
        table = Table(box=None, pad_edge=False)
        for n, (name, *cells) in enumerate(zip(columns, *rows, strict=True)):
            is_number = cells and all(isinstance(cell, int) for cell in cells)
            table.add_column(
                name, justify="right" if is_number else "left", overflow="fold", no_wrap=n < whole
            )
        cut: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if whole else {}
        for row in rows:
            table.add_row(*(Text(escaped(str(cell)), **cut) for cell in row))
        self._out.print(table)

    def note(self, text: str) -> None:
        """Print progress or advice on stderr. Further lines of the text are marked."""
        self._err.print(Text(marked_lines(text), style="dim"))

    def quote(self, text: str) -> None:
        """Print untrusted lines, such as a traceback, on stderr. Each line is marked."""
        self._err.print(Text(marked_lines(f"\n{text}").removeprefix("\n"), style="dim"))

    def error(self, text: str, *more: str) -> None:
        """Print an error on stderr, with `more` as further lines. Line breaks within a text are marked."""
        lines = "\n".join(map(marked_lines, (text, *more)))
        self._err.print(Text.assemble(("error:", "bold red"), f" {lines}"))

    async def is_confirmed(self, question: str) -> bool:
        """Whether the person at the terminal says yes. Prints an error if not, or without a terminal."""
        if sys.stdin.isatty() and self.is_watched:
            self.note(f"{question} [y/N]")
            line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            if line.strip().lower() in ("y", "yes"):
                return True
        self.error("not confirmed, nothing was changed; --yes skips the question")
        return False


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """Raise as any write to a closed pipe does; rich would exit at once."""
        raise BrokenPipeError


class _Stderr(Console):
    def on_broken_pipe(self) -> None:
        """Continue without output: stderr is no longer read."""
        self.quiet = True


async def upstreams_tried(fleet: "Fleet", terminal: Terminal, names: Collection[str] | None = None) -> None:
    """Wait until each upstream (of `names`) is ready or has failed. Prints the names of slow ones."""
    slow = await fleet.settled(_QUIET_SECONDS, names)
    if not slow:
        return
    named = some([upstream.name for upstream in slow], _MAX_NAMED)
    seconds = max(upstream.spec.connect_seconds for upstream in slow)
    terminal.note(f"waiting for {named} (up to {seconds:g} s)")
    await fleet.settled(inf, names)  # each has its own deadline


def unknown_name(noun: str, name: str, there: Collection[str]) -> str:
    """The error for an unknown name, with the nearest name or all names."""
    near = get_close_matches(name, there, n=1) or sorted(there)[:_MAX_NAMED]
    return f"the manifest has no {noun} {name!r}; known: {', '.join(near) or 'none'}"


def shell_command(manifest: "Manifest", *words: str) -> str:
    """A command of the portal for this manifest, as one would type it in the current folder."""
    from manifests.loader import DEFAULT_FILE

    # Where a link leads there is no portal.env.
    path = os.path.abspath(manifest.path or DEFAULT_FILE)
    config = [] if path == os.path.abspath(DEFAULT_FILE) else ["--config", path]
    return shlex.join(["mcp-code-portal", *words, *config])


def counted(number: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def person(door: str) -> str:
    """The user of this system, as decisions name who came by this door."""
    try:
        return f"{door} {getpass.getuser()}"
    except (OSError, KeyError, ImportError):  # the system has no name for the user
        return door


def open_browser(url: str) -> None:
    """Open a page, if there is a display: a text browser would take over the terminal."""
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "darwin" or has_display:
        webbrowser.open(url)


def declared(hints: "Hints") -> str:
    """The annotations of a tool in one word."""
    if hints.destructive:
        return "destroys"
    return "reads" if hints.readonly else "nothing" if hints.is_silent else "writes"
