"""The calls that wait for a person, and what the person decides.

Rule 1: who may decide is asked in `decide_call` only; a page tells beforehand what that would say.
Rule 2: a GET decides nothing, so a link never does.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from portal.base.errors import RunsError
from portal.console.forms import Ask, Group
from portal.console.pages import STATUSES, asked_part, form_of, page, source_of, visitor_of
from portal.console.plots import picture
from portal.identity.approvers import Approvers, Decider
from portal.records.ledger import counted
from portal.records.store.run_tables import RunTables
from portal.runs.decisions import ASKED, asking_runs, call_to_decide, find_seen, unknown_run
from portal.runs.past import HEAD, RunHead
from portal.runs.run_page import only_lines

MAX_CASES: Final = 20
"""Runs on the page. Others follow as these are decided."""

MAX_CALLS: Final = 50
"""Calls of each of them, likewise."""

_LINES: Final = 2, 5
"""Lines of the script that are shown before and after a call."""

_LINE_CHARACTERS: Final = 300


def approval_routes() -> Sequence[Route]:
    """The routes below the base of the console."""
    return (
        Route("/approvals", _approvals, methods=["GET"]),
        Route("/runs/{run}/answers", _decide, methods=["POST"]),
        Route("/runs/{run}/answers/{seq:int}", _decide, methods=["POST"]),
        Route("/runs/{run}/answers/{seq:int}/preview", _preview, methods=["POST"]),
    )


def case_of(tables: RunTables, run: str, decider: Decider, approvers: Approvers) -> Mapping[str, Any]:
    """A run that asks, with what helps to decide. It has no `groups` if no call waits.

    Raises RunsError: the visitor sees no such run.
    """
    seen = find_seen(tables, run, decider, approvers)
    if (row := tables.history_row(seen.id)) is None:
        raise unknown_run(run)
    since = {each.seq: each.at for each in tables.log_after(0, row.id, kind="waiting")}
    asked = tables.calls(row.id, ASKED)
    groups: dict[str, list[Ask]] = {}
    waiting = {call.seq: call for call in asked if call.asks}
    for call in [*waiting.values()][:MAX_CALLS]:
        ask = Ask.of(call, approvers, since.get(call.seq, seen.updated))
        # A table has a column for each argument, so what has none stands alone: a question, or arguments as a text.
        name = call.function if ask.fields else f"{call.seq}"
        groups.setdefault(name, []).append(ask)
    made = [{"function": each[1]} for each in row.listed if each[0] not in waiting]
    count = max(row.calls - len(waiting), 0)
    head = HEAD.validate_json(tables.head(row.id))
    calls = f"{count or 'No'} call{'s' * (count != 1)}"
    those = (", among them " if len(made) < count else ": ") * bool(made)  # of many, the trail has some
    before = f"{calls} so far{those}{counted(made)}." if row.ms else ""
    by = ", ".join(dict.fromkeys(call.decided_by for call in asked if call.decided_by))
    functions = {call.function for call in waiting.values()}
    return {
        "row": row,
        "caller": tables.caller(row.owner),
        "picture": picture(row, tables.now()),
        "groups": [Group(tuple(asks)) for asks in groups.values()],
        "more": len(waiting) - MAX_CALLS,
        "so_far": f"{before} Decided by {by}.".strip() if by else before,
        "lines": _lines(head, functions),
        "refusal": approvers.refusal(row.owner, decider),
    }


def _lines(head: RunHead, functions: set[str]) -> list[tuple[int, str, bool]]:
    """The number and text of the lines around the first that alone names a function, and whether they are such a line.

    None, if there is none.
    """
    script, found = head.request.code, only_lines(head.request.code, head.kernel)
    naming = {line for function, line in found.items() if line and function in functions}
    around = range(min(naming) - _LINES[0], min(naming) + _LINES[1] + 1) if naming else ()
    lines = enumerate(script.split("\n"), 1)
    return [(n, line[:_LINE_CHARACTERS], n in naming) for n, line in lines if n in around]


async def _approvals(request: Request, status: int = 200, said: str = "", problem: str = "") -> Response:
    """The page of all runs that ask. `said` and `problem` tell what was decided, and what was not."""
    source, decider = source_of(request), visitor_of(request).decider
    approvers = source.approvers

    def found(tables: RunTables) -> tuple[list[Mapping[str, Any]], int]:
        rows, cases = asking_runs(tables, decider, approvers), list[Mapping[str, Any]]()
        for row in rows[:MAX_CASES]:
            with suppress(RunsError):  # it has just ended, and only its owner sees it now
                cases.append(case_of(tables, row.id, decider, approvers))
        return cases, len(rows) - MAX_CASES

    cases, more = await source.read(found, decider.owner)
    told = {"cases": cases, "more": more, "said": said, "problem": problem}
    part = asked_part(request, "inbox")
    return await page(request, "approvals.html", "approvals", part=part, status=status, **told)


async def _decide(request: Request) -> Response:
    """Decide about one call, or about several of one run, where each decision is its own."""
    source, decider, form = source_of(request), visitor_of(request).decider, await form_of(request)
    run, named = request.path_params["run"], request.path_params.get("seq")
    chosen = form.getlist("seq") if named is None else [f"{named}"]
    seqs = [int(each) for each in chosen if re.fullmatch(r"[0-9]{1,9}", each)]
    done = list[int]()
    refused = [] if seqs else [RunsError("invalid_decision", "no call was chosen", "Choose one.")]
    for seq in seqs:
        try:
            decision = await _decision(request, form)
            run = await source.decide(run, seq, decider, **decision)
            done.append(seq)
        except RunsError as error:
            refused.append(error)
    if not refused and "hx-request" not in request.headers:
        back = f"runs/{run}" if form.get("back") == "run" else "approvals"
        return RedirectResponse(f"{source.base}/{back}", 303)
    # As the store has it: a late denial revokes what an approval stands for, and does not undo it.
    calls = await source.read(partial(RunTables.calls, run=run), decider.owner) if done else ()
    now = {each.seq: json.loads(each.decision or b"{}").get("decision") for each in calls}
    told = [f"call {seq} is {now.get(seq)}" for seq in done]
    said = f"Run {run[:12]}: {', '.join(told)}." if told else ""
    problem = " ".join(f"{str(each).rstrip('.')}. {each.hint}" for each in refused)
    status = STATUSES.get(refused[0].code, 400) if refused else 200
    if "hx-request" not in request.headers:
        return await _approvals(request, status, said, problem)
    # htmx puts it in the place of the case: the case as it is now, if it still asks.
    case = None
    with suppress(RunsError):  # it has ended, and only its owner sees it now
        look = partial(case_of, run=run, decider=decider, approvers=source.approvers)
        case = await source.read(look, decider.owner)
    response = await page(request, "decided.html", status=status, case=case, said=said, problem=problem)
    if status == 422:
        response.headers["HX-Reswap"] = "none"  # what the person has written stays
    return response


async def _decision(request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `decide_call` that a form contains. Raises RunsError: it decides nothing."""
    choice, is_one = form.get("decision"), "seq" in request.path_params
    decision: dict[str, Any] = {"is_approved": choice != "deny", "reason": form.get("reason", "")[:2_000]}
    if choice == "change" and is_one:
        ask = await _asked(request)
        changes = ask.changes(form)
        problems = [ask.fixed] * bool(ask.fixed)
        problems += [f"{each.field.name}: {each.problem}" for each in changes if each.problem]
        if problems:
            raise RunsError("invalid_arguments", "; ".join(problems), "Nothing was decided.")
        values = {field.name: field.was for field in ask.fields}
        written = {change.field.name: change.value for change in changes}
        return {**decision, "arguments": values | written if written else None}
    if choice not in ("approve", "deny"):
        raise RunsError("invalid_decision", "no decision was chosen", "Approve or deny.")
    # Not for several: an approval that stands would also approve those that were left out.
    return {**decision, "stands": is_one and choice == "approve" and "stands" in form}


async def _preview(request: Request) -> Response:
    """What a person has changed so far."""
    form = await form_of(request)
    return await page(request, "difference.html", changes=(await _asked(request)).changes(form))


async def _asked(request: Request) -> Ask:
    """The call in the path. Raises RunsError: it does not wait, or the visitor does not see it."""
    source, decider, path = source_of(request), visitor_of(request).decider, request.path_params

    def ask(tables: RunTables) -> Ask:
        row = find_seen(tables, path["run"], decider, source.approvers)
        return Ask.of(call_to_decide(tables, row, path["seq"]), source.approvers)

    return await source.read(ask, decider.owner)
