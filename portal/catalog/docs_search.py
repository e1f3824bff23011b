"""`docs_search`: finds functions and answers within a token budget; scripts get the whole answer."""

import difflib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from manifests.json_value import Json
from manifests.kernels import PYTHON, KernelName
from manifests.manifest import Manifest
from manifests.names import namespace_of
from portal.base.errors import ASK_OPERATOR, NO_UPSTREAMS
from portal.base.plain_text import escaped
from portal.base.requests import DocsSearchRequest
from portal.base.tokens import compact, is_loaded, is_within, o200k_base
from portal.catalog.authority import Authority, grant_lines
from portal.catalog.catalog import Catalog, describe_state
from portal.catalog.search.query import FEW_WORDS, asked_name, may_mean, read_query, terms_of
from portal.catalog.snapshot import MAX_NAME_CHARACTERS, Snapshot
from portal.library.function import Function
from portal.library.library import PORTAL
from portal.library.notation import NOTATIONS
from portal.library.schema import MAX_DEPTH
from upstreams.health import WELL
from upstreams.tools import ListedUpstream

if TYPE_CHECKING:
    from portal.catalog.search.index import SearchHits


@dataclass(frozen=True)
class Found:
    """The best functions, best first. The first `full` are shown with types and documentation.

    `total` counts all that match. `namespaces` is set if the query asked for them, and `own` counts those of `portal`.
    `depth` shortens results, see `Function.full`.
    """

    functions: Sequence[Function]
    total: int
    full: int
    notices: Sequence[str]
    namespaces: Sequence[dict[str, Json]] | None = None
    own: int = 0
    depth: int = MAX_DEPTH
    kernel: KernelName = PYTHON
    """Its language is that of the text and the signatures."""

    def structured(self) -> dict[str, Json]:
        """Everything as data."""
        answer: dict[str, Json] = {
            "functions": rows(self.functions, self.full, self.depth, self.kernel),
            "total": self.total,
            "notices": [escaped(notice, "\n\t") for notice in self.notices],
        }
        if self.namespaces is not None:
            answer["namespaces"] = list(self.namespaces)
        return answer

    def fitting(self, form: Callable[["Found"], str], max_tokens: int) -> "Found":
        """Shorten it until it fits into `max_tokens` in this form; a notice says what was dropped.

        The shortest version is returned even if it does not fit.
        """
        shown, listed = len(self.functions), len(self.namespaces or ())
        while not is_within(form(part := self._cut(shown, listed, self.full)), max_tokens):
            if shown <= 1 and listed <= 1:
                return self._shortened(form, max_tokens)
            shown, listed = max(shown * 3 // 4, min(shown, 1)), listed * 3 // 4
        return part

    def _shortened(self, form: Callable[["Found"], str], max_tokens: int) -> "Found":
        """The first function, with the deepest levels of its result dropped if that is enough; else without types."""
        fewest = min(len(self.functions), 1), min(len(self.namespaces or ()), 1)
        best = self._cut(*fewest, 0)
        for depth in range(-1, MAX_DEPTH) if self.full else ():
            part = self._cut(*fewest, 1, depth)
            if not is_within(form(part), max_tokens):
                break
            best = part
        return best

    def _cut(self, shown: int, listed: int, full: int, depth: int = MAX_DEPTH) -> "Found":
        notices = list(self.notices)
        if left_out := len(self.functions) - shown + len(self.namespaces or ()) - listed:
            notices.append(
                f"{left_out} more do not fit into server.output_tokens: ask for fewer, or for one upstream"
            )
        name = self.functions[0].qualified if self.functions else ""
        if self.full and not full:
            notices.append(f"types and documentation of {name} do not fit into server.output_tokens")
        if depth < MAX_DEPTH:
            notices.append(f"the result of {name} is shortened to fit into server.output_tokens: look at one")
        spaces = None if self.namespaces is None else self.namespaces[:listed]
        full, kept = min(full, shown), self.functions[:shown]
        return replace(self, functions=kept, full=full, notices=notices, namespaces=spaces, depth=depth)

    def text(self) -> str:
        """A line for each namespace or function, and stubs. Everything else is a comment."""
        lines = [_namespace_line(row) for row in self.namespaces or ()]
        if self.namespaces is not None:
            lines.append(f"{PORTAL} {self.own}")
        told: set[str] = set()
        sign = NOTATIONS[self.kernel].sign
        lines += (f"{each.full(told, self.depth, self.kernel)}\n" for each in self.functions[: self.full])
        for function in self.functions[self.full :]:
            remark = "" if function.returns.seen_text is None else function.returns.remark_in(self.kernel)
            about = filter(None, [remark, function.summary_in(self.kernel).removesuffix(".")])
            lines.append(f"  {sign} ".join([function.brief_in(self.kernel), *about]))
        if self.functions and self.total > len(self.functions):
            lines.append(f"{sign} {len(self.functions)} of {self.total}")
        lines.extend(f"{sign} {'' if each == _WEAK else 'notice: '}{escaped(each)}" for each in self.notices)
        return "\n".join(lines) or f"{sign} nothing"


@dataclass(frozen=True)
class DocsSearchAnswer:
    """The answer within `max_tokens`. A form costs nothing until it is read: most clients get only the text."""

    found: Found
    max_tokens: int

    @cached_property
    def structured(self) -> dict[str, Json]:
        """`{functions, total, notices, namespaces?}`."""
        return self.found.fitting(lambda part: compact(part.structured()), self.max_tokens).structured()

    @cached_property
    def text(self) -> str:
        """The same in few tokens."""
        return self.found.fitting(Found.text, self.max_tokens).text()


def _namespace_line(row: dict[str, Json]) -> str:
    """`git 12`, without the summary, which is the server's instructions."""
    upstream = "" if row["upstream"] == row["namespace"] else f", upstream {row['upstream']!r}"
    state = "" if row["state"] in WELL else f", {row['state']}"
    return f"{row['namespace']} {row['functions']}{upstream}{state}"


def rows(
    functions: Sequence[Function], full: int, depth: int = MAX_DEPTH, kernel: KernelName = PYTHON
) -> list[dict[str, Json]]:
    """One row per function. The first `full` rows have a `stub`."""
    shown: list[dict[str, Json]] = [
        {
            "name": function.qualified,
            "upstream": function.upstream,
            "tool": function.tool,
            "signature": function.brief_in(kernel),
            "summary": function.summary_in(kernel),
        }
        for function in functions
    ]
    told: set[str] = set()
    for row, function in zip(shown, functions[:full], strict=False):
        row["stub"] = function.full(told, depth, kernel)
    return shown


_WEAK: Final = "weak: try other words for one step, or an empty query"

_MAX_SAID_CHARACTERS: Final = 2_000
_SPARE: Final = 3
_FEW_ROWS = 12
_ROWS_OF_FULL = 3

MAX_DETAIL_CHARACTERS = 300
"""Characters of the reason in a notice about an upstream that is not ready."""

MAX_STATE_NOTICES = 10
"""Upstreams that are not ready but could be the answer, shown with the reason."""

_MAX_NAMED = 3
"""Other upstreams that are not ready, shown by name; all are counted."""


@dataclass(frozen=True, eq=False)
class DocsSearch:
    """Answers queries from the catalog's current snapshot, within `server.output_tokens`."""

    authority: Authority
    catalog: Catalog
    fleet: Iterable[ListedUpstream]
    waiting: Sequence[str] = ()
    """Files with changes that wait for the operator."""

    @property
    def manifest(self) -> Manifest:
        return self.authority.manifest

    async def answer(self, request: DocsSearchRequest) -> DocsSearchAnswer:
        """Search after the upstreams have started, or after `server.start_seconds`."""
        # A slow upstream delays only the first searches.
        left_seconds = (
            self.authority.policy.since + self.manifest.portal.server.start_seconds - time.monotonic()
        )
        with anyio.move_on_after(left_seconds):
            for upstream in self.searched(request.upstream):
                await upstream.started()
        found = self.find(await self.catalog.fresh(), request)
        rows = len(found.functions) + len(found.namespaces or ()) + _ROWS_OF_FULL * found.full
        if rows > _FEW_ROWS and not is_loaded():
            await anyio.to_thread.run_sync(o200k_base)  # their tokens may have to be counted
        return DocsSearchAnswer(found, self.manifest.portal.server.output_tokens)

    def find(
        self, snapshot: Snapshot, request: DocsSearchRequest, most: int = MAX_DETAIL_CHARACTERS
    ) -> Found:
        """Search the snapshot, without waiting for upstreams. `most` limits the characters of reasons in notices."""
        query, key, kernel = request.query.strip(), self._key(request.upstream), request.kernel or PYTHON
        assert snapshot.index is not None, "a fresh snapshot has one"
        hits = snapshot.index.search(request.query, request.limit + _SPARE, key)
        # A function of `portal` does not answer a query that only shares a word with it.
        words, others = {*read_query(query).words}, hits.functions[hits.exact :]
        own = [each for each in others if each.namespace == PORTAL]
        strange = {each for each in own if 2 * _words_of(each, words)[1] < len(words)}
        functions = [each for each in hits.functions if each not in strange][: request.limit]
        total, exact = hits.total - len(strange), hits.exact
        notices = [*self._upstream_notices(query, key, hits, most)]
        if [*self.fleet]:
            notices += _absence_notices(snapshot, query, functions)
        if exact and not query.isalpha():
            # A single plain word may be a function's name or a search, so other matches are kept, briefly.
            functions, total = functions[:exact], exact
        full = len(functions) if request.detail == "full" else exact
        if query or key is not None:
            notices += [_WEAK] if not exact and _is_weak(words, functions) else []
            return Found(functions, total, full, notices, kernel=kernel)
        notices += grant_lines(self.manifest, kernel)
        if self.waiting:
            notices.append(
                "a change of the portal's configuration is not in effect: its operator has not accepted it"
            )
        size, every = snapshot.index.search("", 1, PORTAL).total, len(snapshot.library.functions)
        return Found((), every, 0, notices, self._namespaces(snapshot), size, kernel=kernel)

    def described(self, snapshot: Snapshot, name: str, kernel: KernelName = PYTHON) -> dict[str, Json] | None:
        """The row of the one function with this name, with as much of its types as fits; None without one."""
        known = snapshot.library.functions.get(snapshot.canonical(name))
        named: Sequence[Function] = () if known is None else (known,)
        if known is None and snapshot.index is not None:
            hits = snapshot.index.search(name, 2)  # two show that the name is ambiguous
            named = hits.functions[: hits.exact]
        if len(named) != 1:
            return None
        answer = DocsSearchAnswer(
            Found(named, 1, 1, [], kernel=kernel), self.manifest.portal.server.output_tokens
        )
        (row,) = answer.structured["functions"]
        return row if "stub" in row else rows(named, 1, -1, kernel)[0]

    def searched(self, upstream: str | None) -> list[ListedUpstream]:
        """The upstreams that a search covers: the one with this name or namespace, or all."""
        key = self._key(upstream)
        return [each for each in self.fleet if key in (None, each.name)]

    def _upstream_notices(self, query: str, key: str | None, hits: "SearchHits", most: int) -> Iterator[str]:
        """Notices about upstreams that are not ready, with the reason if one could be the answer, or do not exist."""
        asked, found = {*terms_of(query, _MAX_SAID_CHARACTERS)}, {each.upstream for each in hits.functions}
        meant = silent = [upstream for upstream in self.searched(key) if not upstream.state.is_well]
        if query and key is None:
            found |= {each.name for each in silent if asked.intersection(terms_of(each.name, 200))}
            meant = [
                each for each in silent if each.name in found or each.name.casefold() in query.casefold()
            ]
        meant = meant[:MAX_STATE_NOTICES]
        for each in meant:
            retry_status = f"; {each.retry_status}" if each.retry_status else ""
            yield f"{describe_state(each, most)}{retry_status}"
        others = [f"{each.name!r} is {each.state.adjective}" for each in silent if each not in meant]
        if others and not (hits.exact and "." in query):
            yield f"not ready either ({len(others)}): {', '.join(others[:_MAX_NAMED])}"
        if any(each.state.remedy for each in meant):
            yield "`mcp-code-portal check` tells the operator what to do"
        namespaces = self.manifest.namespaces
        if not namespaces:
            yield NO_UPSTREAMS
        if key is not None and key not in (PORTAL, *namespaces):
            near = difflib.get_close_matches(key, namespaces) or sorted(namespaces)[:10]
            yield f"there is no upstream {key[:100]!r}; upstreams: {', '.join(near) or 'none'}"

    def _key(self, name: str | None) -> str | None:
        """The manifest's key for `name`, which may also be a namespace. An unknown name is returned unchanged."""
        namespaces = self.manifest.namespaces
        if name is None or name in namespaces:
            return name
        return next((key for key, namespace in namespaces.items() if namespace == name), name)

    def _namespaces(self, snapshot: Snapshot) -> list[dict[str, Json]]:
        rows: list[dict[str, Json]] = []
        for upstream in self.fleet:
            namespace = namespace_of(upstream.name)
            known = snapshot.library.namespaces.get(namespace)
            rows.append(
                {
                    "namespace": namespace,
                    "upstream": upstream.name,
                    "summary": known.summary if known else "",
                    "functions": len(known.functions) if known else 0,
                    "state": upstream.state.status,
                }
            )
        return rows


_NOTHING = "nothing found: try other words for one step of the task, or an empty query to list the namespaces"


def _is_weak(words: Set[str], functions: Sequence[Function]) -> bool:
    """Whether no function has half of the words. A word that is only in a function's texts counts half."""
    is_judged = functions and 0 < len(words) <= FEW_WORDS
    return bool(is_judged) and max(sum(_words_of(each, words)) for each in functions) < len(words)


def _words_of(function: Function, words: Set[str]) -> tuple[int, int]:
    """The number of the words in its name, and the number in its name or its texts."""
    named = {*terms_of(f"{function.tool} {function.upstream}", MAX_NAME_CHARACTERS)}
    said = named.union(terms_of(f"{function.description} {function.brief}", _MAX_SAID_CHARACTERS))
    return sum(may_mean(word, named) for word in words), sum(may_mean(word, said) for word in words)


def _absence_notices(snapshot: Snapshot, query: str, functions: Sequence[Function]) -> Iterator[str]:
    """Notices why a function is missing or cannot be called, as far as the caller may know."""
    withheld = dict(snapshot.withheld(query))
    for best in functions[:1]:
        if decision := snapshot.denied.get(best.qualified):
            withheld[best.qualified] = decision
    for qualified, decision in withheld.items():
        why = "quarantined" if decision.code == "quarantined" else "not granted to scripts"
        yield f"{qualified} exists but is {why}: {decision.rule}. {ASK_OPERATOR}"
    if not query or withheld or (functions and not _is_absent(query, functions)):
        return
    near = snapshot.library.nearest(query[:MAX_NAME_CHARACTERS])
    if near:
        yield f"no function is called {query!r}; nearest: {', '.join(near)}"
    elif not functions:
        yield _NOTHING


def _is_absent(query: str, functions: Sequence[Function]) -> bool:
    """Whether the query is a function's whole name, `tickets.get_isue`, and none of those found has it."""
    asked = asked_name(query)
    found = {
        name.casefold()
        for each in functions
        for name in (each.qualified, f"{each.upstream}.{each.tool}", each.tool)
    }
    return re.fullmatch(r"\w+(?:\.\w+)+", asked) is not None and asked not in found
