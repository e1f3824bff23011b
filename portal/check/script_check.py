"""Everything that is looked for in one script, with a type checker's help and without."""

import ast
from collections.abc import Iterable, Iterator

from portal.check.absences import absence_diagnostics, unread_absences
from portal.check.argument_check import ArgumentCheck
from portal.check.declared_types import DeclaredTypes
from portal.check.diagnostic import Diagnostic, Suspicion
from portal.check.findings import FindingReader
from portal.check.judgement import Judgement
from portal.check.known_values import KnownValues
from portal.check.results import Results
from portal.check.script_calls import meant_function, script_calls
from portal.check.script_tree import ScriptTree
from portal.check.session_history import SessionHistory
from portal.check.ty_server import Finding
from portal.snapshot import Snapshot
from sandbox_runtime.guest.library_names import LIBRARY
from sandbox_runtime.prepared import Prepared


class ScriptCheck:
    """One script, read once.

    Of a script that this Python cannot read, no more is told than which of the functions that the sandbox saw in
    it are not there.
    """

    def __init__(
        self,
        script: ScriptTree | None,
        prepared: Prepared,
        snapshot: Snapshot,
        history: SessionHistory,
        *,
        repairs: bool = True,
    ) -> None:
        self._prepared = prepared
        self._snapshot = snapshot
        self._history = history
        self._script = script
        self._suspected: set[ast.AST] = set()
        if script is not None:
            values = KnownValues(script, history.names)
            self._arguments = ArgumentCheck(values, repairs)
            self._judgement = Judgement(script, values, history)
            self._calls = script_calls(script, snapshot.library.functions)

    def diagnostics(self) -> list[Diagnostic]:
        """What is found without knowing types."""
        script = self._script
        if script is None:
            return [*unread_absences(self._prepared, self._snapshot)]
        absent = absence_diagnostics(script, self._judgement, self._snapshot, self._history)
        suspicions = [*self._suspicions(script)]
        self._suspected = {found.node for found in suspicions}
        return [*absent, *map(self._judgement.diagnostic, suspicions)]

    def _suspicions(self, script: ScriptTree) -> Iterator[Suspicion]:
        for call in self._calls.values():
            yield from self._arguments.suspicions(call)
        yield from Results(script, self._calls, self._history.names).suspicions()
        for node in script.scopes.calls:
            path = script.paths.get(node.func, ())
            if len(path) == 2 and path[0] == LIBRARY and path[1] in self._snapshot.namespaces:
                message = f"{path[1]} is a namespace, not a function"
                hint = "Call one of its functions."
                yield Suspicion(node.func, node.lineno, message, hint, "not_a_function")
        for awaited in script.all_of(ast.Await):
            function = meant_function(script, awaited.value, self._snapshot.library.functions)
            if function is not None:
                message = f"{function.qualified} is awaited, but not called"
                yield Suspicion(awaited, awaited.lineno, message, function.signature, "not_called")

    def typed(self, findings: Iterable[Finding]) -> list[Diagnostic]:
        """What a type checker's findings add to that."""
        if self._script is None:
            return []
        library = self._snapshot.library
        used = [library.namespaces[name] for name in self._prepared.names if name in library.namespaces]
        types = DeclaredTypes((namespace.module, namespace.observed_types) for namespace in used)
        reader = FindingReader(self._script, self._calls, self._arguments, types)
        added = (found for found in reader.suspicions(findings) if found.node not in self._suspected)
        return [*map(self._judgement.diagnostic, added)]
