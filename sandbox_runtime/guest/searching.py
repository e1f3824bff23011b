"""`portal.search` and `portal.describe`: what docs_search tells, told to a script."""

from sandbox_runtime.guest.calls import Call, Calls
from sandbox_runtime.guest.library_function import LibraryFunction

SEARCH = "portal.search"
DESCRIBE = "portal.describe"


class Searching:
    """Makes the calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def search(
        self, query: str = "", *, detail: str = "brief", upstream: str | None = None, limit: int = 5
    ) -> Call:
        """Find functions, as docs_search does: {"functions": [{"name", "signature", ...}], "total", "notices"}."""
        arguments: dict[str, object] = {"query": query, "detail": detail, "limit": limit}
        if upstream is not None:
            arguments["upstream"] = upstream
        return self._calls.create(SEARCH, arguments)

    def describe(self, function: object) -> Call:
        """All that is known of one function, given itself or its name: as a row of `search`, with its `stub`."""
        name = function.__qualname__ if isinstance(function, LibraryFunction) else function
        if not isinstance(name, str):
            raise TypeError(
                f'portal.describe takes a function or its name, "tickets.get", not {type(function).__name__}'
            )
        return self._calls.create(DESCRIBE, {"function": name})
