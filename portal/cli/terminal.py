"""What a person sees: results on stdout, progress and errors on stderr, colours only on a terminal."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from manifests.json_value import Json


class Terminal:
    """The two streams of one command. NO_COLOR and TERM=dumb are honoured."""

    def __init__(self) -> None:
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)

    def result(self, text: str) -> None:
        """Print text that may hold anything, exactly as it is."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()

    def json(self, value: Json) -> None:
        self.result(json.dumps(value, ensure_ascii=False, indent=2))

    def note(self, text: str) -> None:
        """One line of progress or advice, on stderr."""
        self.err.print(escape(text), style="dim")

    def error(self, text: str) -> None:
        self.err.print(f"[bold red]error:[/] {escape(text)}")

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """A moving sign on a terminal, while something takes its time; nothing elsewhere."""
        if not self.err.is_terminal:
            yield
            return
        with self.err.status(escape(text)):
            yield
