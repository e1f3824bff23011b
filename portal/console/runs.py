"""The overview, the list of runs, and the page of a run."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from portal.base.errors import RunsError
from portal.console.forms import Ask
from portal.console.needs import Need, approvals
from portal.console.pages import asked_part, cut, highlighted, page, pretty, source_of, visitor_of
from portal.console.plots import Axis, bar, columns, grid, picture, scale
from portal.console.visitor import Visitor
from portal.identity.approvers import Approvers
from portal.records.store.records import OPEN
from portal.records.store.run_tables import RunTables
from portal.records.store.trail import HistoryRow
from portal.runs.decisions import asking_runs, find_seen
from portal.runs.run_page import CallView, RunPage, run_page

PAGE_RUNS: Final = 50
NEWEST_RUNS: Final = 8

MAX_ROWS: Final = 300
"""The rows of a timeline. If a run made more calls, those that were just done are folded by function."""


def run_routes() -> Sequence[Route]:
    """The routes below the base of the console."""
    return (
        Route("/", overview),
        Route("/runs", list_runs),
        Route("/runs/{run}", show),
        Route("/runs/{run}/cancel", cancel, methods=["POST"]),
    )


async def overview(request: Request) -> Response:
    source, visitor = source_of(request), visitor_of(request)
    owner, part = visitor.owner, asked_part(request, "needs", "newest")

    def work(tables: RunTables) -> dict[str, Any]:
        asked: dict[tuple[str, str], list[Need]] = {}
        asking = asking_runs(tables, visitor.decider, source.approvers)
        for need in approvals(tables, asking):
            asked.setdefault((need.run, need.what), []).append(need)
        found: dict[str, Any] = {
            "asked": [*asked.values()],
            "titles": {row.id: row.title for row in asking},
            "now": tables.now(),
            "rows": _with_pictures(tables, tables.history(owner, limit=NEWEST_RUNS)),
        }
        if not part:  # it looks at all runs of a day
            found["day"] = tables.day(owner, tables.now())
            found["columns"] = columns(found["day"].half_hours)
        return found

    try:
        values = await source.read(work, owner)
    except RunsError:  # this portal keeps no runs
        values = {"asked": (), "rows": (), "day": None}
    is_operator = owner is None  # others see their own runs, and not how this portal is doing
    values["needs"] = source.needs() if is_operator else ()
    values["upstreams"] = source.upstreams() if is_operator else ()
    return await page(request, "overview.html", "overview", part=part, **values)


async def list_runs(request: Request) -> Response:
    asked, owner = request.query_params, visitor_of(request).owner
    state, q, before = asked.get("state", ""), asked.get("q", "").strip()[:200], asked.get("before", "")
    place = re.fullmatch(r"([0-9]{1,12}\.[0-9]{1,20}) (run_[0-9a-f]{1,40})", before)
    if before and not place:
        raise HTTPException(400, "`before` is no place in the list of runs")

    def work(tables: RunTables) -> dict[str, Any]:
        last = (float(place[1]), place[2]) if place else None
        found = tables.history(owner, state=state, q=q, before=last, limit=PAGE_RUNS + 1)
        shown = found[:PAGE_RUNS]
        older = f"{shown[-1].began!r} {shown[-1].id}" if found != shown else ""
        return {
            "rows": _with_pictures(tables, shown),
            "older": older,
            "counts": tables.history_counts(owner),
        }

    def link(**changed: str) -> str:
        values = {"state": state, "q": q, **changed}
        return f"?{urlencode({name: value for name, value in values.items() if value})}"

    values = await source_of(request).read(work, owner)
    values |= {"state": state, "q": q, "before": before, "link": link}
    return await page(request, "runs.html", "runs", part=asked_part(request, "list"), **values)


async def show(request: Request) -> Response:
    source, visitor, asked = source_of(request), visitor_of(request), request.query_params.get("call", "")
    run, seq = request.path_params["run"], int(asked) if re.fullmatch("[0-9]{1,9}", asked) else None
    work = partial(_shown, run=run, seq=seq, visitor=visitor, approvers=source.approvers)
    values = await source.read(work, visitor.owner)
    return await page(request, "run.html", "runs", part=asked_part(request, "body"), **values)


async def cancel(request: Request) -> Response:
    source = source_of(request)
    run = await source.cancel(request.path_params["run"], visitor_of(request).owner)
    return RedirectResponse(f"{source.base}/runs/{run}", 303)


def _with_pictures(tables: RunTables, rows: Sequence[HistoryRow]) -> list[tuple[HistoryRow, Markup]]:
    return [(row, picture(row, tables.now())) for row in rows]


def _shown(
    tables: RunTables, *, run: str, seq: int | None, visitor: Visitor, approvers: Approvers
) -> Mapping[str, Any]:
    """What the page of a run shows. Made in the thread of the store, since texts may be long. Raises RunsError."""
    row = tables.history_row(run)
    if row is None or row.is_journaled or visitor.owner not in (None, row.owner):
        run = find_seen(tables, run, visitor.decider, approvers).id
    shown = run_page(tables, run, seq)
    axis = Axis(shown.row.began, shown.ended, shown.pauses)
    call, is_open = shown.selected, shown.row.state in OPEN
    waiting = tables.call(run, call.seq) if call and call.asks else None
    texts = {
        "Arguments": shown.exchange.arguments,
        "Arguments as approved": call and call.decision.get("arguments"),
        "Result": shown.exchange.value,
    }
    return {
        "run": shown,
        "is_open": is_open,
        "may_cancel": is_open and visitor.may_decide and visitor.owner in (None, shown.row.owner),
        "paused": sum(ended - began for began, ended in shown.pauses),
        "scale": scale(axis, shown.outages),
        "grid": grid(axis, shown.outages),
        "rows": [(calls, bar(calls, axis)) for calls in timeline(shown.calls, call)],
        "lines": _lines(shown),
        "call": call,
        "ask": waiting and Ask.of(waiting, approvers, call.began if call else 0.0),
        "refusal": approvers.refusal(shown.row.owner, visitor.decider),
        "texts": {name: pretty(value) for name, value in texts.items() if value is not None},
        "result": pretty(shown.answer.get("result")),
        "stdout": cut(shown.answer.get("stdout", "")),
    }


def timeline(calls: Sequence[CallView], selected: CallView | None) -> list[list[CallView]]:
    """The calls of each row: one, or if there are too many, those of a function that became the same."""
    rows: dict[tuple[str, str, int], list[CallView]] = {}
    own = 0
    for call in calls:
        is_plain = (call.state == "done" and not call.wait) or own >= MAX_ROWS
        is_folded = len(calls) > MAX_ROWS and is_plain and (selected is None or call.seq != selected.seq)
        own += not is_folded
        rows.setdefault((call.function, call.state, 0 if is_folded else call.seq), []).append(call)
    return [*rows.values()]


def _lines(shown: RunPage) -> list[tuple[Markup, str, str]]:
    """Each line of the script with the numbers of the calls that it made, and the worst that became of one."""
    made: dict[int, list[CallView]] = {}
    lines: list[tuple[Markup, str, str]] = []
    for call in shown.calls:
        made.setdefault(call.line, []).append(call)
    for number, code in enumerate(highlighted(cut(shown.script), shown.kernel).rstrip("\n").split("\n"), 1):
        calls = made.get(number, [])
        states = {"person" if call.asks else call.state for call in calls}
        bad = [each for each in ("failed", "unknown", "person") if each in states]
        lines.append((code, _numbers([call.seq for call in calls]), next(iter(bad), "done" if calls else "")))
    return lines


def _numbers(seqs: Sequence[int]) -> str:
    """`7`, `2–4`, or `1, 3, 9 …`."""
    if len(seqs) > 1 and seqs[-1] - seqs[0] == len(seqs) - 1:
        return f"{seqs[0]}–{seqs[-1]}"
    return ", ".join(map(str, seqs[:3])) + " …" * (len(seqs) > 3)
