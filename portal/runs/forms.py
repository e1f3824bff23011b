"""The form in which a person decides about calls.

Rule 1: it shows what the call contains, and reads no file, because no one granted that.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_types import ElicitRequest

from manifests.json_value import Json
from portal.base.plain_text import escaped
from portal.calls.questions import request_of
from portal.runs.shown_calls import MAX_CHARACTERS, MAX_LATER, readable

MAX_CALLS: Final = 10
"""Calls in one form. Further ones follow in the next form. A question has a form of its own."""

CHOICES: Final = ("approve", "approve_later", "deny")


def approval_form(run: str, asked: Sequence[Json], *, four_eyes: bool, url: str = "") -> ElicitRequest:
    """The form about calls of a run, or about one question of its script, as their rows show them.

    `url` is the page of the console about them. Without one no command is named: clients may show forms to models.
    """
    what = "this call" if len(asked) == 1 else f"these {len(asked)} calls, which you decide together"
    lines = [f"A script (run {run}) wants to make {what}:"]
    if "question" in asked[0]:
        lines = [f"A script (run {run}) asks: {asked[0]['question']}"]
    for each in asked if "question" not in asked[0] else ():
        lines += ["", f"{each['function']} of the upstream {each['upstream']}, with"]
        arguments, share = each["arguments"], 3 * MAX_CHARACTERS // max(len(asked), 3)
        lines += [arguments] if isinstance(arguments, str) else readable(arguments, share)
        lines.append(f"The rule {each['rule']} asks you first.")
    may_stand = not four_eyes and all(each.get("may_stand") for each in asked)
    later = f"approve_later: also up to {MAX_LATER} later calls of each function in this run, unseen."
    lines += ["", later] * may_stand
    lines += ["", f"To see more, to change arguments, or to decide call by call: {url}"] * bool(url)
    choices = [each for each in CHOICES if may_stand or each != "approve_later"]
    decision = {"type": "string", "title": "Decision", "enum": choices}
    reason = {"type": "string", "title": "Reason", "default": ""}
    properties: dict[str, Json] = {"decision": decision, "reason": reason}
    form = {"type": "object", "properties": properties, "required": ["decision"]}
    return request_of({"mode": "form", "message": escaped("\n".join(lines), "\n\t"), "requestedSchema": form})


def decision_of(answer: Mapping[str, Json] | None) -> dict[str, Any] | None:
    """The decision in the answer to that form, as arguments of `decide_call`; None if it decides nothing."""
    action, content = (answer or {}).get("action"), (answer or {}).get("content") or {}
    choice = content.get("decision") if action == "accept" else "deny" if action == "decline" else None
    if choice not in CHOICES:
        return None
    reason = str(content.get("reason") or "")
    return {"is_approved": choice != "deny", "stands": choice == "approve_later", "reason": reason}
