"""What a person sees: results on stdout, progress and errors on stderr, colours only on a terminal.

Only here do texts become lines on a terminal. Names, descriptions, errors and files of strangers are in most of them,
so each is spelt out: none of them steers the terminal, hides something, or has a line that looks like one of ours.
"""

import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manifests.json_value import Json
from portal.library.plain_text import MARK, marked_lines, spelt_out, unsteered, visible
from portal.terminal_rows import cells, columns_of, folds


class Terminal:
    """The two streams of one command. NO_COLOR and TERM=dumb are honoured."""

    def __init__(self) -> None:
        self._out = _Stdout(highlight=False, soft_wrap=True, emoji=False)
        self._err = _Stderr(stderr=True, highlight=False, soft_wrap=True, emoji=False)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Not every encoding has every character.
            sys.stdout.reconfigure(errors="backslashreplace")

    @property
    def is_watched(self) -> bool:
        """Whether a person reads what goes to stderr."""
        return self._err.is_terminal

    def result(self, text: str) -> None:
        """Print data, of any number of lines: exactly as it is, but for what would steer a terminal that reads it."""
        text = unsteered(text) if sys.stdout.isatty() else text
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()

    def json(self, value: Json) -> None:
        self.result(json.dumps(value, ensure_ascii=False, indent=2))

    def line(self, text: str, style: str = "") -> None:
        """Print one line of a report."""
        self._out.print_lines(Text(spelt_out(text), style=style))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        table = Table(*columns, box=None, pad_edge=False)
        for row in rows:
            told = (spelt_out(str(cell)) for cell in row)
            table.add_row(*map(Text, map(_apart, told) if self._out.is_terminal else told))
        self._out.print(table, width=self._out.columns)

    def note(self, text: str) -> None:
        """Progress or advice, on stderr. Further lines of the text are marked, so that they are none of ours."""
        self._err.print_lines(Text(marked_lines(text), style="dim"))

    def quote(self, text: str) -> None:
        """What somebody else says in several lines, such as a traceback, on stderr; each of them is marked."""
        self._err.print_lines(Text(marked_lines(f"\n{text}").removeprefix("\n"), style="dim"))

    def error(self, text: str, *more: str) -> None:
        """An error on stderr, `more` being further lines of ours; those of the texts themselves are marked."""
        lines = "\n".join(map(marked_lines, (text, *more)))
        self._err.print_lines(Text.assemble(("error:", "bold red"), f" {lines}"))

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """A moving sign on a terminal, while something takes its time; nothing elsewhere."""
        if not self.is_watched:
            yield
            return
        with self._err.status(Text(spelt_out(text))):
            yield


class _Stream(Console):
    def print_lines(self, text: Text) -> None:
        """Print each line, on a terminal in as many rows as it takes, all but the first of which are marked."""
        for line in text.split("\n", allow_blank=True):
            self.print(*self._rows(line) if self.file.isatty() else [line], sep="\n")

    @property
    def columns(self) -> int:
        """How wide the terminal is: rich believes COLUMNS, which may be that of another, and with TERM=dumb says 80."""
        return columns_of(self.file) or self.width

    def _rows(self, line: Text) -> list[Text]:
        if sum(map(cells, line.plain)) <= self.columns:
            return [line]
        width = max(self.columns - len(MARK), 2)
        wrapped = line.wrap(self, width, overflow="fold")
        first, *others = [part for row in wrapped for part in row.divide(folds(row.plain, width))]
        return [first, *(Text(MARK).append_text(row) for row in others)]


class _Stdout(_Stream):
    def on_broken_pipe(self) -> None:
        """End the command as any other write to a reader that went away does; rich would exit at once."""
        raise BrokenPipeError


class _Stderr(_Stream):
    def on_broken_pipe(self) -> None:
        """Go on in silence: whoever read our logs went away, and the work goes on."""
        self.quiet = True


def _apart(text: str) -> str:
    """The text for a column, with emoji that a terminal may not join next to each other, where rich would join them."""
    return visible(text) if sum(map(cells, text)) > cell_len(text) else text


def counted(number: int, noun: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
