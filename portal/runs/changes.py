"""Wakes what waits in this process for a change of a run."""

import anyio


class Changes:
    """`news` wakes everything that watches runs; `register` is for one waiting call."""

    def __init__(self) -> None:
        self.news = anyio.Event()
        """Set and replaced whenever something may have happened to a run. Take it before you read the store."""
        self._calls: dict[str, dict[int, anyio.Event]] = {}

    def register(self, run: str, seq: int) -> anyio.Event:
        """An event that is set when something about a waiting call may have been decided."""
        return self._calls.setdefault(run, {}).setdefault(seq, anyio.Event())

    def forget(self, run: str) -> None:
        """Drop the events of a run whose calls wait here no longer."""
        self._calls.pop(run, None)

    def note(self, *runs: str) -> None:
        """Note that something may have happened. The calls of these runs look whether they are decided."""
        for run in runs:
            for changed in self._calls.pop(run, {}).values():
                changed.set()
        self.news.set()
        self.news = anyio.Event()

    def note_all(self) -> None:
        """Note that another process may have changed any run."""
        self.note(*self._calls)
