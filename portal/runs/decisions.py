"""Operations of people on runs, for the command line and HTTP: find, show, approve, deny, cancel, fork; and what
webhooks tell people of them.

Rule 1: the run of another owner is treated like one that does not exist.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from manifests.json_value import Json
from manifests.portal_manifest import Webhook
from portal.base.caller import Caller, tenant_of
from portal.base.errors import RunsError
from portal.base.times import iso
from portal.identity.approvers import Approvers, Decider
from portal.records.ledger import Ledger
from portal.records.store.records import ASKING, OPEN, CallRow, CallRowState, RunRow, StoredRun, ambiguous
from portal.records.store.run_tables import Delivery, RunTables
from portal.records.store.tables import DAY_SECONDS
from portal.runs.answer import Answer, load_answer
from portal.runs.past import HEAD, Past, dump_chunk, new_row, new_run_id
from portal.runs.shown_calls import MAX_LATER
from sandbox_runtime.guest_json import encode
from sandbox_runtime.result import RunError
from upstreams.redaction import Redaction

ASKED = "kind IN ('ask', 'approve')"
"""Selects the calls that wait, or waited, for a person."""

_OVER = "Read its answer, or run the script again."
_LOOK = "Read what the run waits for and called."

_WHY = {
    "cancelled": "the run was cancelled",
    "expired": "the run did not end within runs.max_age_days",
    "stuck": "the run cannot go on: its replay differs from its journal",
    "error": "the portal ended during the run, which cannot go on",
}


def unknown_run(run: str) -> RunsError:
    """The error for a run that does not exist, or belongs to another owner."""
    return RunsError(
        "unknown_run",
        f"there is no run {run[:60]!r}: it was never journaled, has expired, or belongs to another caller",
        "Use the id in the answer of its start.",
    )


def find_run(tables: RunTables, run: str, owner: str | None, tenant: str | None = None) -> RunRow:
    """The run with this id or unique prefix, among those of this owner and those that approvers of the tenant see. The
    owner None is the operator, who may see all. Raises RunsError."""
    found = tables.listed(owner, 2, tenant=tenant, written=run)
    if len(found) > 1:
        raise RunsError(*ambiguous("run", run, [each.id for each in found]))
    if not found:
        raise unknown_run(run)
    return found[0]


def find_seen(tables: RunTables, run: str, decider: Decider, approvers: Approvers) -> RunRow:
    """The same, among the decider's own runs, and open runs that have asked a person and have it as an approver."""
    return find_run(tables, run, decider.owner, overseen_tenant(decider, approvers))


def asking_runs(tables: RunTables, decider: Decider, approvers: Approvers) -> list[RunRow]:
    """The newest 100 of the same that wait for a person."""
    return tables.listed(decider.owner, 100, tenant=overseen_tenant(decider, approvers), is_asking=True)


def overseen_tenant(decider: Decider, approvers: Approvers) -> str | None:
    """The tenant whose asking runs the decider sees as an approver, which may be ""; None if it sees its own only."""
    own = decider.owner or ""
    return tenant_of(own) if approvers.oversee(own, decider) else None


def decide_call(
    tables: RunTables,
    run: str,
    seq: int | None,
    decider: Decider,
    approvers: Approvers,
    *,
    is_approved: bool,
    reason: str = "",
    arguments: dict[str, Json] | None = None,
    stands: bool = False,
    through: int | None = None,
) -> CallRow:
    """Approve or deny a call that waits for a person; without `seq`, the only one. Within a transaction.

    Decisions are written only here, so the check who may decide is here too. Changed `arguments` are validated and
    authorized when the call is made. With `stands`, the approval also covers later calls of this function in this run,
    which are approved `through` this one, until a person denies one of them. Returns the call as it was.
    Raises RunsError: there is no such call, another person has to decide, or it was already decided.
    """
    row = find_seen(tables, run, decider, approvers)
    if (refusal := approvers.refusal(row.owner, decider)) is not None:
        raise refusal
    call = call_to_decide(tables, row, seq)
    run, seq = call.run, call.seq
    if stands and (arguments is not None or not may_stand(call, approvers)):  # later ones have the script's
        message = f"an approval of call {seq} cannot stand for later ones"
        raise RunsError("may_not_stand", message, "Decide about each of them.")
    state: CallRowState = "approved" if is_approved else "denied"
    told = {"decision": state, "at": iso(tables.now()), "reason": reason, "arguments": arguments}
    more = {"stands": f"for {MAX_LATER} later calls"} if stands else {"through": through} if through else {}
    is_first = tables.decide(run, seq, state, json.dumps(told | more).encode(), decider.by)
    if not is_approved and tables.get("stands", run, call.function):
        tables.drop("stands", run, call.function)
        tables.note(run, "revoked", seq)
    elif not is_first:
        known = tables.call(run, seq) or call
        was = {"approved": "already approved", "denied": "already denied"}.get(known.state, "already over")
        who = f" by {known.decided_by}" if known.decided_by else ""
        message = f"call {seq} of run {run} was {was}{who}; it is not {state} now"
        raise RunsError("already_decided", message, "The first decision counts.")
    if stands:
        terms = [call.digest, *sorted(approvers.entries)]
        given = {"seq": seq, "by": decider.by, "left": MAX_LATER, "terms": terms}
        tables.put("stands", run, call.function, json.dumps(given).encode())
    return call


def let_pass(tables: RunTables, run: str, seq: int, approvers: Approvers) -> bool:
    """Approve a waiting call if the approval of an earlier one stands for it: at most MAX_LATER times, while the tool's
    definition and the rules about deciding are the same as then. Within a transaction. Raises RunsError.
    """
    tables.lock_run(run)  # first: a denial in another portal may end the approval while it is read
    call = tables.call(run, seq)
    kept = tables.get("stands", run, call.function) if call and may_stand(call, approvers) else None
    given = json.loads(kept or b'{"left": 0}')
    if call is None or not given["left"] or given["terms"] != [call.digest, *sorted(approvers.entries)]:
        return False
    # Not checked again who may decide: the person was allowed to, by the same rules.
    decider = Decider(given["by"])
    decide_call(tables, run, seq, decider, approvers, is_approved=True, through=given["seq"])
    tables.put("stands", run, call.function, json.dumps({**given, "left": given["left"] - 1}).encode())
    return True


def may_stand(call: CallRow, approvers: Approvers) -> bool:
    """Whether an approval of this call may stand for later ones."""
    return not approvers.four_eyes and call.kind == "ask" and bool(json.loads(call.shown).get("may_stand"))


def call_to_decide(tables: RunTables, row: RunRow, seq: int | None) -> CallRow:
    """The call of a run that waits, or waited, for a person; without `seq`, the only one. Raises RunsError."""
    run = row.id
    if row.state not in OPEN:
        raise RunsError("run_ended", f"run {run} has ended: {row.state}. Nothing waits.", _OVER)
    asked = tables.calls(run, ASKED)
    waiting = [call for call in asked if call.asks]
    # Without a number: if someone else has decided, report that, as if the call had been named.
    found = waiting or asked if seq is None else [each for each in asked if each.seq == seq]
    if len(found) == 1:
        return found[0]
    if seq is not None:
        raise RunsError("unknown_call", f"call {seq} of run {run} does not wait for a person", _LOOK)
    listed = ", ".join(f"{call.seq} ({call.function})" for call in waiting[:10]) or "none"
    message = f"run {run} has {len(waiting)} calls that wait: {listed}"
    raise RunsError("which_call", message, "Name one: RUN SEQ.")


def cancel_run(tables: RunTables, run: str, owner: str | None = None) -> str:
    """End a run in any state. Returns its id. Within a transaction. Raises RunsError: it is unknown, or has ended."""
    row = find_run(tables, run, owner)
    if not tables.finish(row.id, "cancelled", None):
        raise RunsError("run_ended", f"run {row.id} has ended already: {row.state}", _OVER)
    return row.id


def fork_run(
    tables: RunTables,
    run: str,
    seq: int,
    code: str | None = None,
    caller: Caller | None = None,
    profile: str | None = None,
    mask: Redaction | None = None,
) -> RunRow:
    """Start a run that repeats another one up to its call `seq`, and continues live from there. Within a transaction.

    Calls that were answered before are not made again. With `code` it continues with that script, which must do the
    same up to that call, and is masked for lists by `mask`. The new run belongs to `caller`, who has to own the former
    run and have its profile; None is the operator, who acts for its owner. Returns the new run, which waits for a
    portal. Raises RunsError.
    """
    run = find_run(tables, run, None if caller is None else caller.run_owner).id
    stored = tables.load(run)
    assert stored is not None
    head, past = Past.of(stored)
    if caller is not None and head.profile != profile:
        raise RunsError("other_profile", f"run {run} has another profile", "Start a run of your own.")
    index = None if past.record is None else past.record.index_of_call(seq)
    if past.record is None or index is None:
        raise RunsError("unknown_call", f"the journal of run {run} has no call {seq}", _LOOK)
    record = past.record.until(index)
    seq = record.calls_made + 1  # concurrent calls are made again together
    if code is not None:
        record = replace(record, script=code)
        head = replace(head, request=replace(head.request, code=code))
    # It does not get the claims or the logins of whoever began the former run.
    head = replace(head, record=replace(record, events=()), is_background=True, caller=caller or head.caller)
    head = replace(head, call_notices={})  # it may not make those calls
    entries = tuple(entry for entry in past.entries.values() if entry.seq < seq)
    days = (stored.row.expires - stored.row.began) / DAY_SECONDS
    row = new_row(new_run_id(), stored.row.owner, head, run, days)
    title = stored.row.title if code is None else head.title(mask)
    row = replace(row, state="waiting", wake_at=0.0, title=title)
    tables.create(row, HEAD.dump_json(head), head.caller.label)
    earlier = [replace(call, run=row.id) for call in stored.calls if call.seq < seq]
    calls = [call for call in earlier if call.outcome or call.state == "intended"]
    tables.advance(row.id, row.epoch, chunk=dump_chunk(record.events, entries), calls=calls)
    return row


def run_view(row: RunRow, caller: str) -> dict[str, Json]:
    """A run as JSON, for lists. `caller` is the name of its owner, if known. Times are ISO 8601 in UTC."""
    times = {"began": row.began, "updated": row.updated, "ended": row.ended, "wakes": row.wake_at or None}
    shown = {key: at and iso(at) for key, at in times.items() if at}
    parent = {"parent": row.parent} if row.parent else {}
    who = {"caller": caller or None, "tenant": tenant_of(row.owner) or None}
    return {"run_id": row.id, "state": row.told, **who, **shown, **parent, "script": row.title}


def waiting_view(calls: Sequence[CallRow]) -> list[dict[str, Json]]:
    """What a run waits for: `[{seq, kind, function, until?, question?}]`."""
    views: list[dict[str, Json]] = []
    for call in calls:
        if call.state != "waiting":
            continue
        due = {"until": iso(call.due_at)} if call.due_at is not None else {}
        name = {"event": call.name} if call.name else {}
        asked = {"asked": json.loads(call.shown)} if call.kind in ASKING else {}
        views.append({"seq": call.seq, "kind": call.kind, "function": call.function, **name, **due, **asked})
    return views


def console_url(base: str | None, run: str, seq: int) -> str:
    """The page on which a person decides about a call; "" if the portal has no URL. To open it decides nothing."""
    return f"{base.rstrip('/')}/ui/approvals#{run[:12]}-{seq}" if base else ""


def add_messages(
    tables: RunTables, run: str, state: str, webhooks: Sequence[Webhook], base: str | None = None
) -> None:
    """Write a message for each webhook that wants this change of a run's state. A portal sends it.

    `base` is the URL of the portal. With it, a person who is asked gets the address of the console.
    """
    event = "run.error" if state == "refused" else f"run.{state}"
    wanting = [webhook for webhook in webhooks if event in webhook.events]
    row = tables.row(run) if wanting else None
    if row is None:
        return
    data = run_view(row, tables.caller(row.owner))
    if state == "waiting":
        data["waiting"] = waiting_view(tables.calls(run, "state = 'waiting'"))
        if not data["waiting"]:
            return  # everything is decided, so the run resumes at once
        asked = [view["seq"] for view in data["waiting"] if "asked" in view]
        if asked and base:
            data["url"] = console_url(base, run, asked[0])
    body = encode({"type": event, "timestamp": iso(row.updated), "data": data})
    for webhook in wanting:
        # Sorts by the time of the store, which portals share.
        message = f"msg_{int(tables.now() * 1e9):016x}{secrets.token_hex(8)}"
        tables.add_delivery(Delivery(message, run, url_number(webhook.url), body, 0, tables.now()))


def url_number(url: str) -> int:
    """The number that identifies a URL in the store. Its messages go to no other URL, however the manifest changes."""
    return int.from_bytes(hashlib.sha256(url.encode()).digest()[:6])


def details(stored: StoredRun) -> dict[str, Json]:
    """Everything about a run as JSON: `run_view`, its script, its calls, and its answer."""
    head = HEAD.validate_json(stored.head)
    return {
        **run_view(stored.row, head.caller.label),
        **head.kernel_told,
        "code": head.request.code,
        "profile": head.profile,
        "waiting": waiting_view(stored.calls) if stored.row.state in OPEN else [],
        "decisions": [
            {"seq": call.seq, "function": call.function, "decision": _decision(call)}
            for call in stored.calls
            if call.decided_by
        ],
        "answer": answer_of(stored).structured(),
    }


def answer_of(stored: StoredRun) -> Answer:
    """The current answer of a run: the kept one, or what is known so far."""
    row = stored.row
    if stored.answer is not None:
        return load_answer(stored.answer)
    ledger = Ledger()
    for seq, entry in sorted(Past.of(stored)[1].entries.items()):
        ledger.open(seq, entry.function)
        entry.restore(ledger[seq])
    calls = ledger.rows()
    if row.state in OPEN:
        waiting = waiting_view(stored.calls) if row.told == "waiting" else []
        for view in waiting:
            # A model must not learn where to change a rule. The rest is for forms.
            for name in ("where", "may_stand", "hints"):
                view.get("asked", {}).pop(name, None)
        return Answer(row.told, row.id, calls=calls, waiting=waiting)
    code = "run_lost" if row.state == "error" else row.state
    error = RunError(code, _WHY.get(row.state, "the run has ended"), hint="`calls` says what it did before.")
    return Answer(row.state, row.id, error=error, calls=calls)


def _decision(call: CallRow) -> dict[str, Any]:
    told = json.loads(call.decision) if call.decision else {}
    return {"by": call.decided_by, **{key: value for key, value in told.items() if value}}
