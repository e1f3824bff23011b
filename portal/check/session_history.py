"""What scripts that ran earlier in a session may have left for the next one."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self

from portal.check.script_tree import ScriptTree
from portal.check.tampering import may_tamper

MAX_NAMES: Final = 100_000
"""Names that are kept of one session; with more of them nothing refuses its scripts any longer."""


@dataclass(frozen=True)
class SessionHistory:
    """The names that those scripts bound anywhere, for their functions may bind them again; and whether one of
    them had the means to change the library itself. `digest` is of their texts.
    """

    names: frozenset[str] = frozenset()
    may_tamper: bool = False
    digest: bytes = b""

    def after(self, source: str, namespaces: Collection[str]) -> Self:
        """With one more script, which is run; of one that cannot be read anything is believed."""
        script = ScriptTree.read(source, namespaces)
        scopes = () if script is None else script.all_scopes
        names = self.names.union(*(scope.bindings for scope in scopes))
        is_unclear = script is None or len(names) > MAX_NAMES or may_tamper(script)
        digest = hashlib.sha256(self.digest + source.encode(errors="surrogatepass")).digest()
        return type(self)(names, self.may_tamper or is_unclear, digest)


NO_HISTORY: Final = SessionHistory()
