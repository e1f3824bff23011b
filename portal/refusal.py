"""What a script, or its check, is told of a call that the manifest refuses."""

from dataclasses import dataclass

from manifests.decision import Decision
from sandbox_runtime.calls import CallError

_WHY = {"not_granted": "is not granted to scripts", "quarantined": "is quarantined"}


@dataclass(frozen=True, slots=True)
class RuleError(CallError):
    """`rule` and `where` it stands are in the manifest's words: nothing of the call is in them."""

    rule: str = ""
    where: str = ""


def refused(qualified: str, decision: Decision, code: str | None = None) -> RuleError:
    """The rule, where it stands, and what to write for another answer; `code` if it is not the decision's own."""
    code = code or decision.code
    why = _WHY.get(code, "was not called")
    hint = f"{decision.grant} The rule is at {decision.where}.".strip()
    message = f"{qualified} {why}: {decision.reason}"
    return RuleError(code, message, hint, rule=decision.rule, where=decision.where)
