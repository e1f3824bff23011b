"""The news of a portal's runs: who waits for a change is woken, and reads the store."""

from weakref import WeakValueDictionary

import anyio


class Changes:
    def __init__(self) -> None:
        self.news = anyio.Event()
        """Set and replaced whenever something may have happened to a run. Take it before you read the store."""
        self.rows = anyio.Event()
        """Like `news`, and also set when the trail has new rows: for lists, since no run waits for those."""
        self._waits: WeakValueDictionary[str, anyio.Event] = WeakValueDictionary()

    def register(self, run: str) -> anyio.Event:
        """An event that is set when something about the waiting calls of a run may have been decided."""
        return self._waits.setdefault(run, anyio.Event())

    def wake(self, *runs: str) -> None:
        """Note that something may have happened to a run. The waiting calls of these look whether they are decided."""
        for run in runs:
            self._waits.pop(run, anyio.Event()).set()
        self.news.set()
        self.news = anyio.Event()
        self.note_rows()

    def note_rows(self) -> None:
        """Note that lists of runs may have changed."""
        self.rows.set()
        self.rows = anyio.Event()

    def wake_all(self) -> None:
        """Note that another process may have changed any run."""
        self.wake(*self._waits)
