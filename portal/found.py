"""What docs_search found, as data and as text, cut to the tokens that an answer may have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from manifests.json_value import Json
from portal.budget.tokens import compact, is_within
from portal.function_rows import rows, stub_code
from portal.library.function import Function
from portal.library.plain_text import escaped

_SUMMARY_CHARACTERS = (200, 60, 0)
"""Of what an upstream says about itself: the less, the more of them there are."""


@dataclass(frozen=True)
class DocsSearchAnswer:
    """`structured` is `{functions, total, notices, namespaces?}`; `text` says the same as Python stub code."""

    structured: dict[str, Json]
    text: str


@dataclass(frozen=True)
class Found:
    """The best functions, best first, the first `full` of them to be shown with types and documentation.

    `total` is how many fit at all. `namespaces` are there if they were asked for.
    """

    functions: Sequence[Function]
    total: int
    full: int
    notices: Sequence[str]
    namespaces: Sequence[dict[str, Json]] | None = None

    def structured(self) -> dict[str, Json]:
        """All of it as data."""
        answer: dict[str, Json] = {
            "functions": rows(self.functions, self.full),
            "total": self.total,
            "notices": [escaped(notice, "\n\t") for notice in self.notices],
        }
        if self.namespaces is not None:
            answer["namespaces"] = list(self.namespaces)
        return answer

    def answer(self, max_tokens: int) -> DocsSearchAnswer:
        """As much of it as fits, whichever of its two forms is read; a notice says what does not.

        Of many namespaces first the summaries are cut. What is left at the least is told in any case.
        """
        for part in self._parts():
            answer = DocsSearchAnswer(part.structured(), part._text())
            if is_within(answer.text, max_tokens) and is_within(compact(answer.structured), max_tokens):
                break
        return answer

    def _parts(self) -> Iterator["Found"]:
        """Itself, and then less and less of it."""
        spaces = self.namespaces
        for characters in _SUMMARY_CHARACTERS if spaces else (0,):
            spaces = spaces and [{**row, "summary": row["summary"][:characters]} for row in spaces]
            yield self._cut(len(self.functions), self.full, spaces, len(spaces or ()))
        shown, listed, full = len(self.functions), len(spaces or ()), self.full
        while shown > 1 or listed > 1 or full:
            if shown > 1 or listed > 1:
                shown, listed = max(shown * 3 // 4, min(shown, 1)), listed * 3 // 4
            else:
                full = 0
            yield self._cut(shown, full, spaces, listed)

    def _cut(
        self, shown: int, full: int, namespaces: Sequence[dict[str, Json]] | None, listed: int
    ) -> "Found":
        notices = list(self.notices)
        if left_out := len(self.functions) - shown + len(namespaces or ()) - listed:
            notices.append(f"{left_out} more do not fit here: ask for fewer, or for one upstream")
        if undocumented := self.functions[full : self.full]:
            name = undocumented[0].qualified
            notices.append(f"types and documentation of {name} do not fit into server.output_tokens")
        spaces = None if namespaces is None else namespaces[:listed]
        return Found(self.functions[:shown], self.total, min(full, shown), notices, spaces)

    def _text(self) -> str:
        """Python stub code; what is no code is a comment."""
        lines = [_namespace_line(row) for row in self.namespaces or ()]
        lines += stub_code(self.functions, self.full)
        if self.functions and self.total > len(self.functions):
            lines.append(f"# {len(self.functions)} of {self.total}")
        lines.extend(f"# notice: {escaped(notice)}" for notice in self.notices)
        return "\n".join(lines) or "# nothing"


def _namespace_line(row: dict[str, Json]) -> str:
    summary = f": {row['summary']}" if row["summary"] else ""
    upstream = "" if row["upstream"] == row["namespace"] else f" (upstream {row['upstream']!r})"
    return f"# {row['namespace']}{upstream}, {row['functions']} functions, {row['state']}{summary}"
