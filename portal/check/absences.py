"""Finds what a script mentions and may not call: functions that are refused or not there, and whole namespaces."""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from manifests.names import BUILTINS, STANDARD_LIBRARY
from portal.check.diagnostic import Diagnostic, Suspicion
from portal.check.judgement import Judgement
from portal.check.script_tree import ScriptTree
from portal.check.session_history import SessionHistory
from portal.snapshot import Snapshot
from sandbox_runtime.calls import CallError
from sandbox_runtime.guest.library_names import LIBRARY, Path
from sandbox_runtime.prepared import Prepared

_ASK: Final = frozenset(
    {(LIBRARY,), *(("builtins", name) for name in ("dir", "globals", "hasattr", "locals", "vars"))}
)
_ASK_FOR_MODULES: Final = frozenset({"importlib", "pkgutil", "portal"})

MAX_NEAREST: Final = 8
"""Absent functions of one script for which the nearest are looked for."""

_KNOWN: Final = BUILTINS | STANDARD_LIBRARY | {LIBRARY, "ToolError", "portal"}
_CONDITIONS: Final = re.compile(
    r"\b(?:and|assert|case|class|def|elif|else|except|finally|for|if|lambda|or|try|while|with)\b"
)
_UNCERTAIN: Final = re.compile(
    r"\b(?:builtins|eval|exec|exit|globals|locals|mock|modules|quit|raise|return|setattr|vars|__\w+__)\b"
)
_CALLED: Final = re.compile(r"(?<![\w.])([^\W\d]\w*)\s*\.\s*\w+\s*\(")


@dataclass(frozen=True)
class _Mention:
    """A place where the script mentions a function."""

    node: ast.AST
    line: int
    namespace: str
    function: str


def absence_diagnostics(
    script: ScriptTree, judgement: Judgement, snapshot: Snapshot, history: SessionHistory
) -> Iterator[Diagnostic]:
    """Each absent function once: at the first place that refuses the script, if there is one."""
    told: dict[str, Diagnostic] = {}
    absences = _Absences(snapshot)
    mentions = [*_mentioned(script, snapshot), *_unbound_calls(script, snapshot, history)]
    wanted = {mention.namespace: mention.function for mention in mentions if mention.function}
    for mention in sorted(mentions, key=lambda mention: mention.line):
        # `import weathr` says less of what is wanted than the call below it.
        absence = absences.of(mention.namespace, mention.function or wanted.get(mention.namespace, ""))
        former = None if absence is None else told.get(absence.message)
        if absence is not None and (former is None or not former.refuses):
            suspicion = Suspicion(mention.node, mention.line, absence.message, absence.hint, absence.code)
            diagnostic = judgement.diagnostic(suspicion)
            told[absence.message] = diagnostic if diagnostic.refuses else former or diagnostic
    yield from told.values()


def unread_absences(prepared: Prepared, snapshot: Snapshot) -> Iterator[Diagnostic]:
    """The same for a script that only the sandbox can read, as far as that told."""
    absences = _Absences(snapshot)
    told: set[str] = set()
    for use in prepared.uses:
        absence = absences.of(use.namespace, use.function)
        if absence is not None and absence.message not in told:
            told.add(absence.message)
            refuses = _is_plainly_reached(prepared.source, use.line)
            yield Diagnostic(use.line, absence.message, absence.hint, refuses, absence.code)


def _is_plainly_reached(source: str, number: int) -> bool:
    """Whether a line is a top-level statement without conditions, and nothing before it may keep it from running."""
    *before, line = source.split("\n", number)[:number]
    if line[:1].isspace() or _CONDITIONS.search(line):
        return False
    return not any(map(_UNCERTAIN.search, before))


def mentions_unbound(source: str) -> bool:
    """Whether a script may call something of a name that nothing binds; quick, and rather once too often."""
    return not _KNOWN.issuperset(_CALLED.findall(source))


class _Absences:
    """Why functions are not there, the nearest looked for a few times only."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._found: dict[str, CallError] = {}

    def of(self, namespace: str, function: str) -> CallError | None:
        qualified = f"{namespace}.{function}"
        if qualified in self._snapshot.library.functions and qualified not in self._snapshot.denied:
            return None
        if qualified not in self._found:
            is_near = len(self._found) < MAX_NEAREST
            self._found[qualified] = self._snapshot.absence(qualified, with_nearest=is_near)
        return self._found[qualified]


def _mentioned(script: ScriptTree, snapshot: Snapshot) -> Iterator[_Mention]:
    """The functions that a script reads or imports without asking whether they are there."""
    questions = _Questions(script, snapshot.namespaces)
    for mention in script.scopes.mentions:
        node, path = mention.node, script.paths.get(mention.node)
        is_read = isinstance(node.ctx, ast.Load) and not mention.is_guarded
        if path is not None and is_read and _is_function(path, snapshot.namespaces):
            name = path[2] if len(path) > 2 else ""
            if not questions.may_be_about(path[1], name):
                yield _Mention(node, node.lineno, path[1], name)
    statements: dict[int, ast.stmt] = {node.lineno: node for node in script.all_of(ast.Import)}
    statements.update((node.lineno, node) for node in script.all_of(ast.ImportFrom))
    for found in script.scopes.imports:
        path = (LIBRARY, *found.path) if found.path[0] in snapshot.namespaces else found.path
        if not found.is_guarded and _is_function(path, snapshot.namespaces):
            name = path[2] if len(path) > 2 else ""
            if not questions.may_be_about(path[1], name):
                yield _Mention(statements[found.line], found.line, path[1], name)


class _Questions:
    """What a script may ask before it uses it.

    One that has the name of a function as a text somewhere may, as in `"search" in dir(github)`; one that has that of
    a namespace only where it also looks at what there is: `"jira" in dir(tools)`, `find_spec("tools.jira")`.
    """

    def __init__(self, script: ScriptTree, namespaces: Collection[str]) -> None:
        self._namespaces = namespaces
        self._texts = {node.value for node in script.all_of(ast.Constant) if isinstance(node.value, str)}
        self._words: set[str] = set()
        if any(_asks(path) for path in script.paths.values()):
            self._words.update(word for text in self._texts for word in text.split("."))

    def may_be_about(self, namespace: str, function: str) -> bool:
        is_absent = namespace not in self._namespaces
        return (is_absent and namespace in self._words) or (function != "" and function in self._texts)


def _asks(path: Path) -> bool:
    is_special = path[0] == LIBRARY and len(path) > 1 and path[1].startswith("__")
    return path in _ASK or path[0] in _ASK_FOR_MODULES or is_special


def _is_function(path: Path, namespaces: Collection[str]) -> bool:
    """Whether it leads to a function of the library, or into a namespace that there is none of."""
    if path[0] != LIBRARY or len(path) == 1 or any(part.startswith("__") for part in path[:3]):
        return False
    return len(path) > 2 or path[1] not in namespaces


def _unbound_calls(script: ScriptTree, snapshot: Snapshot, history: SessionHistory) -> Iterator[_Mention]:
    """Calls `weathr.forecast(...)` of a name that nothing binds: not the script, nor one before it in its session."""
    called = {call.func for call in script.scopes.calls}
    unbound = [
        (mention, mention.node.value.id)
        for mention in script.scopes.mentions
        if isinstance(mention.node, ast.Attribute)
        and isinstance(mention.node.value, ast.Name)
        and mention.node in called
        and not mention.is_guarded
        and mention.node.value.id not in _KNOWN
        and not mention.node.value.id.startswith("__")  # `__doc__`, `__class__`, which Python binds itself
    ]
    if not unbound:
        return
    bound = {name for scope in script.all_scopes for name in scope.bindings}
    known = (snapshot.namespaces, history.names, bound)
    questions = _Questions(script, snapshot.namespaces)
    for mention, name in unbound:
        node = mention.node
        is_known = any(name in each for each in known) or questions.may_be_about(name, "")
        if isinstance(node, ast.Attribute) and not is_known:
            yield _Mention(node, node.lineno, name, node.attr)
