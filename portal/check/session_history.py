"""What scripts that ran earlier in a session may have left for the next one."""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Self

from portal.check.endings import mentions_end
from portal.check.script_tree import ScriptTree
from portal.check.tampering import may_tamper
from sandbox_runtime.guest.library_names import LIBRARY

MAX_NAMES: Final = 100_000
"""Names that are kept of one session; with more of them nothing refuses its scripts any longer."""


@dataclass(frozen=True)
class SessionHistory:
    """The names that those scripts bound anywhere, for their functions may bind them again; and whether one of
    them had the means to change the library itself. `digest` is of their texts.

    `replaced` are the names that stand for something else since: `open = quiet_open`, but not `import json`. If
    `may_end`, a function that they left may end the script that calls it.
    """

    names: frozenset[str] = frozenset()
    may_tamper: bool = False
    digest: bytes = b""
    replaced: frozenset[str] = frozenset()
    may_end: bool = False

    def after(self, source: str, namespaces: Collection[str]) -> Self:
        """With one more script, which is run; of one that cannot be read anything is believed."""
        script = ScriptTree.read(source, namespaces)
        scopes = () if script is None else script.all_scopes
        names = self.names.union(*(scope.bindings for scope in scopes))
        is_unclear = script is None or len(names) > MAX_NAMES or may_tamper(script)
        digest = hashlib.sha256(self.digest + source.encode(errors="surrogatepass")).digest()
        return type(self)(
            names,
            self.may_tamper or is_unclear,
            digest,
            self.replaced.union(() if script is None else _replaced(script)),
            self.may_end or script is None or mentions_end(script),
        )

    def may_change(self, script: ScriptTree) -> bool:
        """Whether what a script reads may be something else since, or end it."""
        free = {name.id for name in script.known_names if script.is_free(name)}
        is_used = any(name.id in self.names for name in script.names)
        return self.may_tamper or not self.replaced.isdisjoint(free) or (self.may_end and is_used)


def _replaced(script: ScriptTree) -> Iterator[str]:
    for name, bindings in script.scopes.module.bindings.items():
        if any(binding.imported not in ((name,), (LIBRARY, name)) for binding in bindings):
            yield name


NO_HISTORY: Final = SessionHistory()
