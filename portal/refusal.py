"""What a script, or its check, is told of a call that the manifest refuses."""

from manifests.decision import Decision
from sandbox_runtime.calls import CallError

_WHY = {"not_granted": "is not granted to scripts", "quarantined": "is quarantined"}


def refused(qualified: str, decision: Decision, code: str | None = None) -> CallError:
    """The rule, where it stands, and what to write for another answer; `code` if it is not the decision's own."""
    code = code or decision.code
    why = _WHY.get(code, "was not called")
    hint = f"{decision.grant} The rule is at {decision.where}.".strip()
    return CallError(code, f"{qualified} {why}: {decision.rule}", hint)
