"""Decides which findings refuse a script."""

from functools import cached_property

from portal.check.certainty import Certainty
from portal.check.diagnostic import Diagnostic, Suspicion
from portal.check.endings import hides_ends
from portal.check.error_handling import ErrorHandling
from portal.check.known_values import KnownValues
from portal.check.own_functions import OwnFunctions
from portal.check.script_tree import ScriptTree
from portal.check.session_history import SessionHistory


class Judgement:
    """Judges the findings of one script: one refuses where no run that comes to it can be right.

    Most scripts have none, so nothing is looked into before the first is there.
    """

    def __init__(self, script: ScriptTree, values: KnownValues, history: SessionHistory) -> None:
        self._script = script
        self._values = values
        self._history = history
        self._certain: dict[str, Certainty] = {}

    def diagnostic(self, found: Suspicion) -> Diagnostic:
        refuses = found.is_sure and not self._is_unclear and found.node in self._certainty(found.code)
        return Diagnostic(found.line, found.message, found.hint, refuses, found.code)

    @cached_property
    def _functions(self) -> OwnFunctions:
        return OwnFunctions(self._script, self._values)

    @cached_property
    def _is_unclear(self) -> bool:
        """Whether nothing that is found can refuse, because names or ends may be others than they look."""
        script = self._script
        return self._history.may_change(script) or self._values.may_tamper or hides_ends(script)

    def _certainty(self, code: str) -> Certainty:
        if code not in self._certain:
            handling = ErrorHandling(self._script, self._values, self._history.names, code)
            self._certain[code] = Certainty(self._script, self._values, handling, self._functions)
        return self._certain[code]
