"""What needs a person: calls that wait for an approval, sign-ins, upstreams that are down, tools that the lockfile
withholds, and a changed manifest.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from manifests.json_value import Json
from portal.base.plain_text import one_line, some
from portal.records.store.records import RunRow, short_id
from portal.records.store.run_tables import RunTables

if TYPE_CHECKING:  # the command `status` reads approvals only, and the SDK behind it takes a second to import
    from portal.server.portal import Portal

Kind: TypeAlias = Literal["approval", "sign-in", "down", "withheld", "manifest"]

_MAX_CHARACTERS: Final = 300
_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Need:
    """`what` is one line for people, and may quote upstreams and scripts; `do` is the command that helps, if one does.

    Approvals have the `run` and the number of the call. `at` is since when, in seconds since 1970; 0 if unknown.
    """

    kind: Kind
    what: str
    run: str = ""
    seq: int = 0
    at: float = 0
    do: str = ""


def approvals(tables: RunTables, rows: Sequence[RunRow]) -> list[Need]:
    """The calls of these runs that wait for a person. The one that waits longest is first."""
    found = []
    for row in rows:
        asked_at = {each.seq: each.at for each in tables.log_after(0, row.id, kind="waiting")}
        for call in tables.calls(row.id, "state = 'waiting'"):
            if call.asks:
                what = one_line(json.loads(call.shown).get("question", call.function), _MAX_CHARACTERS)
                do = f"mcp-code-portal ui {short_id(row.id)}"
                at = asked_at.get(call.seq, row.updated)
                found.append(Need("approval", what, row.id, call.seq, at, do))
    return sorted(found, key=attrgetter("at"))


def of_portal(portal: "Portal") -> list[Need]:
    """What is not in the store, because it concerns the portal as it runs now."""
    from portal.library.pinning import QUARANTINED

    path, needs = portal.manifest.path, list[Need]()

    def add(kind: Kind, what: str, *command: str, at: float = 0) -> None:
        config = ["--config", os.path.abspath(path)] if path else []
        do = shlex.join(["mcp-code-portal", *command, *config])
        needs.append(Need(kind, one_line(what, _MAX_CHARACTERS), at=at, do=do))

    for upstream, told in zip(portal.fleet, upstream_states(portal), strict=True):
        since, what = upstream.state.since.timestamp(), f"{upstream.name}: {told['detail']}"
        if told["status"] == "needs_login":
            add("sign-in", what, "login", upstream.name, at=since)
        elif told["status"] in ("down", "failing"):
            add("down", what, "check", at=since)
    denied = portal.catalog.snapshot.denied
    if withheld := [name for name, decision in denied.items() if decision.code == QUARANTINED]:
        add("withheld", f"portal.lock withholds {some(withheld, _MAX_NAMED)}", "lock", "--diff")
    if waiting := portal.views.waiting:
        add("manifest", f"a change of {some(waiting, _MAX_NAMED)} waits", "reload")
    return needs


def upstream_states(portal: "Portal") -> list[Json]:
    """`[{name, status, tools, detail}]`, as in docs/console.md."""
    return [
        {
            "name": each.name,
            "status": each.state.status,
            "tools": len(each.tools),
            "detail": "; ".join(filter(None, (each.state.advice, each.retry_status))),
        }
        for each in portal.fleet
    ]
