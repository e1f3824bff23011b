"""What a call looks like to the person who decides about it, and the form in which they do.

Rule 1: each part of the arguments has its share of the length, so that none hides another one. What is cut is told.
Rule 2: it shows what the call says, and reads no file: that would be a call that nobody granted.
"""

import itertools
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import Any, Final

from mcp_types import ElicitRequest

from manifests.json_value import Json
from portal.budget.tokens import compact
from portal.library.plain_text import escaped
from portal.passthrough.questions import MAX_MESSAGE_CHARACTERS, request_of

MAX_CALLS: Final = 10
"""Calls in one form. Others follow in the next one."""

MAX_SHOWN_CHARACTERS: Final = 20_000
"""Longer arguments are kept for the person as a form shows them; their sha256 identifies the whole."""

MAX_LATER: Final = 50
"""Later calls for which one approval stands."""

CHOICES: Final = ("approve", "approve_later", "deny")

_LEAST_CHARACTERS: Final = 40  # the share of a part; if there are too many, the last ones are only counted
_LONGEST_NAME: Final = 60
_LONGEST_KEY: Final = 200  # of a map, such as a path
_LONGEST_PARTED: Final = 100_000  # characters of what is shown part by part, which takes milliseconds


def approval_form(run: str, asked: Sequence[Json], *, four_eyes: bool) -> ElicitRequest:
    """The form about calls of a run, or about one question of its script, as their rows show them."""
    what = "this call" if len(asked) == 1 else f"these {len(asked)} calls, which you decide together"
    lines = [f"A script (run {run}) wants to make {what}:"]
    if "question" in asked[0]:
        lines = [f"A script (run {run}) asks: {asked[0]['question']}"]
    for each in asked if "question" not in asked[0] else ():
        lines += ["", f"{each['function']} of the upstream {each['upstream']}, with"]
        arguments, share = each["arguments"], 3 * MAX_MESSAGE_CHARACTERS // max(len(asked), 3)
        lines += [arguments] if isinstance(arguments, str) else readable(arguments, share)
        lines.append(f"The rule {each['rule']} asks you first.")
    may_stand = not four_eyes and all(each.get("may_stand") for each in asked)
    later = f"approve_later: also up to {MAX_LATER} later calls of each function in this run, unseen."
    lines += ["", later] * may_stand
    choices = [each for each in CHOICES if may_stand or each != "approve_later"]
    decision = {"type": "string", "title": "Decision", "enum": choices}
    properties: dict[str, Json] = {"decision": decision, "reason": {"type": "string", "title": "Reason"}}
    form = {"type": "object", "properties": properties, "required": ["decision"]}
    return request_of({"mode": "form", "message": escaped("\n".join(lines), "\n\t"), "requestedSchema": form})


def decision_of(answer: Mapping[str, Json] | None) -> dict[str, Any] | None:
    """What the answer to that form decides, as `decide_call` takes it; None if nothing."""
    action, content = (answer or {}).get("action"), (answer or {}).get("content") or {}
    choice = content.get("decision") if action == "accept" else "deny" if action == "decline" else None
    if choice not in CHOICES:
        return None
    reason = str(content.get("reason") or "")
    return {"is_approved": choice != "deny", "stands": choice == "approve_later", "reason": reason}


def readable(value: Json, characters: int = MAX_MESSAGE_CHARACTERS, name: str = "") -> list[str]:
    """Arguments as lines of about so many characters in all: `name: value`, or a name and a block of marked lines."""
    if (parts := _parts(name, value, characters)) is None:
        return _value(name or "arguments", value, characters)
    shown, left, share = parts[: max(1, characters // _LEAST_CHARACTERS)], characters, 0
    for n, size in enumerate(sorted(len(compact(part)) for _, part in shown)):
        share = left // (len(shown) - n)  # what the shorter ones do not need is left to the longer ones
        if size > share:
            break
        left -= size
    lines = [line for label, part in shown for line in readable(part, share, label)]
    more = len(parts) - len(shown)
    return [*lines, f"  … and {more:,} more of {name or 'the arguments'}, not shown"] if more else lines


def _parts(name: str, value: Json, characters: int) -> list[tuple[str, Json]] | None:
    """What is shown one by one: the arguments, and what in them has texts of several lines, changes, or parts that a
    line of so many characters would hide; else None. A change is a pair of texts.
    """
    if not isinstance(value, dict | list):
        return None
    text = compact(value) if name else "\\n"
    hides = len(text) > characters >= len(value) * _LEAST_CHARACTERS
    is_line = not hides and "\\n" not in text and '"old' not in text
    if len(name) > _LONGEST_NAME or len(text) > _LONGEST_PARTED or is_line:
        return None
    if isinstance(value, list):
        return [(f"{name}[{n}]", part) for n, part in enumerate(value)]
    parts: list[tuple[str, Json]] = []
    for key, part in value.items():
        # What could look like something else on its line is quoted.
        word = key if key.isidentifier() and len(key) <= _LONGEST_NAME else compact(key[:_LONGEST_KEY])
        word += f"… ({len(key):,} characters)" * (len(key) > _LONGEST_KEY)
        old, new = value.get(f"old{key[3:]}"), value.get(f"new{key[3:]}")
        is_change = key[:3] in ("old", "new") and isinstance(old, str) and isinstance(new, str)
        if not is_change or key[:3] == "old":
            parts.append((f"{name}.{word}" if name else word, (old, new) if is_change else part))
    return parts


def _value(name: str, value: Json, characters: int) -> list[str]:
    if isinstance(value, tuple):
        old, new = (text.split("\n") for text in value)
        head = len(commonprefix([old, new]))  # noqa: RUF071  # of lines, not of characters
        tail = len(commonprefix([old[head:][::-1], new[head:][::-1]]))  # noqa: RUF071
        marked = (
            ("  = ", old[:head]),
            ("  - ", old[head : len(old) - tail]),
            ("  + ", new[head : len(new) - tail]),
        )
        blocks = [_block(*each, characters // 3) for each in (*marked, ("  = ", old[len(old) - tail :]))]
        return [f"  {name}:", *itertools.chain(*blocks)]
    if not isinstance(value, str):
        return _block(f"  {name}: ", [compact(value)], characters)
    if "\n" in value:
        return [f"  {name}:", *_block("  | ", value.split("\n"), characters)]
    return _block(f'  {name}: "', [value], characters, '"')


def _block(mark: str, lines: Sequence[str], characters: int, end: str = "") -> list[str]:
    text = "\n".join(lines)
    shown = [f"{mark}{line}{end}" for line in text[:characters].split("\n") if lines]
    return [*shown, f"  … cut: it has {len(text):,} characters"] if len(text) > characters else shown
