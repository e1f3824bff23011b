"""Wakes what waits in this process for a change of a run."""

import anyio


class Changes:
    """`news` wakes everything that watches runs; `register` is for the waiting calls of one."""

    def __init__(self) -> None:
        self.news = anyio.Event()
        """Set and replaced whenever something may have happened to a run. Take it before you read the store."""
        self._runs: dict[str, anyio.Event] = {}

    def register(self, run: str) -> anyio.Event:
        """An event that is set when something about the waiting calls of a run may have been decided."""
        return self._runs.setdefault(run, anyio.Event())

    def forget(self, run: str) -> None:
        """Drop the event of a run whose calls wait here no longer."""
        self._runs.pop(run, None)

    def note(self, *runs: str) -> None:
        """Note that something may have happened. The calls of these runs look whether they are decided."""
        for run in runs:
            self._runs.pop(run, anyio.Event()).set()
        self.news.set()
        self.news = anyio.Event()

    def note_all(self) -> None:
        """Note that another process may have changed any run."""
        self.note(*self._runs)
