"""What a person sees: results on stdout, progress and errors on stderr, colours only on a terminal."""

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from manifests.json_value import Json

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What moves a terminal's cursor, colours it or more; texts of upstreams must not."""


class Terminal:
    """The two streams of one command. NO_COLOR and TERM=dumb are honoured."""

    def __init__(self) -> None:
        self.out = _Stdout(highlight=False, soft_wrap=True, emoji=False)
        self.err = _Stderr(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Not every encoding has every character.
            sys.stdout.reconfigure(errors="backslashreplace")

    def result(self, text: str) -> None:
        """Print text that may hold anything, exactly as it is."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()

    def json(self, value: Json) -> None:
        self.result(json.dumps(value, ensure_ascii=False, indent=2))

    def line(self, text: str, style: str | None = None) -> None:
        """Print one line of a report."""
        self.out.print(visible(text), markup=False, style=style)

    def note(self, text: str) -> None:
        """One line of progress or advice, on stderr."""
        self.err.print(escape(visible(text)), style="dim")

    def error(self, text: str) -> None:
        self.err.print(f"[bold red]error:[/] {escape(visible(text))}")

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """A moving sign on a terminal, while something takes its time; nothing elsewhere."""
        if not self.err.is_terminal:
            yield
            return
        with self.err.status(escape(text)):
            yield


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """End the command as any other write to a reader that went away does; rich would exit at once."""
        raise BrokenPipeError


class _Stderr(Console):
    def on_broken_pipe(self) -> None:
        """Go on in silence: whoever read our logs went away, and the work goes on."""
        self.quiet = True


def counted(number: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def visible(text: str) -> str:
    """The text with what would steer a terminal spelt out."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
