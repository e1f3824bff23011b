"""What a script, or its check, is told of a call that the manifest refuses."""

from manifests.decision import Decision
from sandbox_runtime.calls import CallError


def refused(qualified: str, decision: Decision, code: str = "not_granted") -> CallError:
    """The rule, where it stands, and what to write for another answer."""
    why = "is not granted to scripts" if code == "not_granted" else "was not called"
    hint = f"{decision.grant} The rule is at {decision.where}.".strip()
    return CallError(code, f"{qualified} {why}: {decision.rule}", hint)
