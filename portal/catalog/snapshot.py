"""The functions that scripts may call at one moment, and the reasons why they may not call others.

Rule 1: a Snapshot never changes. A run keeps the one that it was checked against.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from manifests.decision import Decision
from manifests.kernels import PYTHON, KernelName
from manifests.names import identifier, namespace_of
from portal.base.errors import refused
from portal.catalog.search.query import asked_name, partitions
from portal.library.library import Library
from sandbox_runtime.call_port import CallError
from upstreams.errors import UpstreamDownError

if TYPE_CHECKING:
    from portal.catalog.search.index import SearchIndex

MAX_NAME_CHARACTERS = 200
"""Longer names that a guest made up are cut to this length."""

_MAX_WITHHELD = 5
"""Denied functions shown for one name."""


@dataclass(frozen=True)
class Snapshot:
    """The functions that scripts may call at one moment.

    `denied` holds the decisions against functions, by qualified name, including those that the library still shows.
    `silent` says by namespace why it has no functions.
    """

    library: Library
    index: "SearchIndex | None"
    """None before the first upstreams are known."""
    denied: Mapping[str, Decision]
    silent: Mapping[str, str]

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """All namespaces that scripts may mention, even if the upstream is down or all its tools are denied."""
        return frozenset({*self.library.namespaces, *self.silent, *self._hidden})

    def canonical(self, qualified: str) -> str:
        """The current name of a function that a script may call by another name."""
        return self.library.other_names.get(qualified, qualified)

    def table(
        self, namespaces: Collection[str], kernel: KernelName = PYTHON
    ) -> Mapping[str, Mapping[str, str]]:
        """Signatures by function by namespace; "" for other names, and for hidden functions, which the host refuses."""
        known = [self.library.namespaces[name] for name in namespaces if name in self.library.namespaces]
        word = "async def " * (kernel == PYTHON)
        shown = {each.name: {f.name: word + f.brief_in(kernel) for f in each.in_order} for each in known}
        hidden = {name: self._hidden[name] for name in namespaces if name in self._hidden}
        return {**shown, **{name: {**shown.get(name, {}), **rows} for name, rows in hidden.items()}}

    @cached_property
    def _hidden(self) -> Mapping[str, Mapping[str, str]]:
        rows: dict[str, dict[str, str]] = {}
        for qualified in (self.denied.keys() | self.library.other_names) - self.library.functions.keys():
            namespace, _, name = qualified.partition(".")
            if name.isidentifier():
                rows.setdefault(namespace, {})[name] = ""
        return rows

    def withheld(self, query: str) -> Mapping[str, Decision]:
        """The denied functions that this query names exactly, by qualified name, with the decisions.

        Searches hide them. Only a query with the exact name reveals a function and its rule. The name may be quoted or
        written as a call. It may have no namespace, or the upstream's key as namespace.
        """
        asked = asked_name(query)
        if " " in asked:
            return {}
        names = [asked, identifier(asked)]
        for owner, name in partitions(asked):
            names += [f"{namespace}.{identifier(name)}" for namespace in (owner, namespace_of(owner))]
        found = next((self._denied_names[name] for name in names if name in self._denied_names), ())
        return {qualified: self.denied[qualified] for qualified in found[:_MAX_WITHHELD]}

    @cached_property
    def _denied_names(self) -> Mapping[str, Sequence[str]]:
        """The qualified names, in order, by the lower-case names that find them."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for qualified in sorted(self.denied):
            for name in {qualified.casefold(), qualified.partition(".")[2].casefold()}:
                names[name].append(qualified)
        return names

    def absence(self, qualified: str, *, with_nearest: bool = True, kernel: KernelName = PYTHON) -> CallError:
        """The error for a denied or missing function. Finding the nearest names takes up to 0.1 s."""
        if decision := self.denied.get(qualified):
            return refused(qualified, decision)
        qualified = qualified[:MAX_NAME_CHARACTERS]
        namespace, _, name = qualified.partition(".")
        if namespace in self.silent:
            message = f"{qualified} cannot be called: {self.silent[namespace]}"
            return CallError(UpstreamDownError.code, message, UpstreamDownError.hint)
        if namespace in self.library.namespaces:
            message, query = f"{namespace} has no function {name!r}", name
        else:
            message, query = f"there is no namespace {namespace!r}", f"{namespace} {name}"
        nearest = self._nearest(qualified, kernel) if with_nearest else ""
        words = " ".join(re.findall(r"[^\W_]+", query))[:60]
        return CallError("unknown_function", message, nearest or f'Look it up: docs_search(query="{words}")')

    def _nearest(self, qualified: str, kernel: KernelName) -> str:
        """Suggestions for a misspelt function: the nearest with its signature, and others."""
        near = self.library.nearest(qualified)
        if not near:
            namespace = qualified.partition(".")[0]
            if namespace in self.namespaces:
                return ""
            namespaces = difflib.get_close_matches(namespace, self.namespaces)
            return f"Nearest: {', '.join(namespaces)}." if namespaces else ""
        others = f" Or: {', '.join(near[1:])}." if near[1:] else ""
        return f"Nearest: {self.library.functions[near[0]].brief_in(kernel)}.{others}"
