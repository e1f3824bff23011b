"""Runs in the background as tasks of MCP's tasks extension, for clients of revision 2026-07-28 that declare it.

Rule 1: a task is a run, and has its id. The portal stores nothing else about it.
Rule 2: the client's person decides about a call, through `tasks/update`. No tool does that, so no model can.

Source: MCP extension io.modelcontextprotocol/tasks, specification/2026-07-28/tasks.md (SEP-2663).
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import mcp_types as types
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from manifests.json_value import Json
from portal.base.caller import Caller
from portal.base.errors import RunsError
from portal.base.times import iso
from portal.calls.channel import Context
from portal.calls.questions import can_show_forms
from portal.records.store.records import OPEN, CallRow, RunRow, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import DAY_SECONDS
from portal.runs.answer import Answer, awaited
from portal.runs.decisions import answer_of, find_run, waiting_view
from portal.runs.forms import decision_of
from portal.runs.past import HEAD
from portal.runs.service import Runs
from portal.server.callers import caller_of, decider_of

Status: TypeAlias = Literal["working", "input_required", "completed", "cancelled"]

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The name of the extension in the capabilities of clients and servers."""


class Task(types.Result):
    """A run as a task. It never fails: an error of a script is a result with `isError`, as without a task.

    In place of the result of tools/call its `result_type` is "task". `ttl_ms` counts from `created_at`.
    """

    result_type: Literal["task", "complete"] = "complete"
    task_id: str
    status: Status
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int = 2_000
    input_requests: types.InputRequests | None = None
    result: types.CallToolResult | None = None


class TaskParams(types.RequestParams):
    """The parameters of tasks/get and tasks/cancel."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """The parameters of tasks/update."""

    input_responses: dict[str, Json]


@dataclass(frozen=True)
class Tasks:
    """Serves the tasks of all clients. `result` makes execute_code's result from an answer and its `max_tokens`."""

    runs: Runs
    result: Callable[[Caller, Answer, int | None], Awaitable[types.CallToolResult]]

    async def created(self, context: Context, answer: Answer) -> Task | None:
        """The task of a run that this call started in the background; None if it did not, or the client does not
        support tasks."""
        if answer.status != "running":
            return None
        try:
            row, _ = await self._find(context, answer.run_id)
        except (MCPError, StoreError):
            return None  # the answer says how to ask for the run's answer
        # It may already have ended. The client learns that when it asks.
        return _task(row, self.runs.settings.keep_days, "working", result_type="task")

    async def get(self, context: Context, params: TaskParams) -> Task:
        """The current task, with its result or with its questions to the person."""
        row, calls = await self._find(context, params.task_id)
        task = partial(_task, row, self.runs.settings.keep_days)
        if row.state == "cancelled":
            return task("cancelled")
        if row.state not in OPEN:
            stored = await self.runs.load(row.id, row.owner)
            asked = HEAD.validate_json(stored.head).request.max_tokens
            result = await self.result(caller_of(context), answer_of(stored), asked)
            return task("completed", result=result)
        waits = "; ".join(map(awaited, waiting_view(calls)[:5]))
        task = partial(task, status_message=f"waits for {waits}" if waits else None)
        approvers = self.runs.approvers
        is_refused = approvers.refusal(row.owner, decider_of(context)) is not None
        requests: types.InputRequests = {
            key: self.runs.form(row.id, {call.seq: json.loads(call.shown)})
            for key, call in ({} if is_refused else _asked(context, calls)).items()
        }
        return task("input_required", input_requests=requests) if requests else task("working")

    async def update(self, context: Context, params: TaskUpdateParams) -> types.EmptyResult:
        """Take the person's decisions. Answers about calls that do not wait, or no longer do, are ignored.

        Raises MCPError: another person has to decide.
        """
        row, calls = await self._find(context, params.task_id)
        asked, given = _asked(context, calls), params.input_responses
        decisions = {call.seq: _decision(key, given[key]) for key, call in asked.items() if key in given}
        decider = decider_of(context)
        for seq, decision in decisions.items():
            if decision is None:
                continue
            try:
                await self.runs.decide(row.id, seq, decider, **decision)
            except RunsError as error:
                if error.code not in ("already_decided", "run_ended", "unknown_run"):  # not merely late
                    raise MCPError(types.INVALID_PARAMS, f"{error.code}: {error}. {error.hint}") from None
        return types.EmptyResult()

    async def cancel(self, context: Context, params: TaskParams) -> types.EmptyResult:
        """End the run, unless it has ended."""
        row, _ = await self._find(context, params.task_id)
        with suppress(RunsError):  # it has just ended
            await self.runs.cancel(row.id, row.owner)
        return types.EmptyResult()

    async def _find(self, context: Context, run: str) -> tuple[RunRow, Sequence[CallRow]]:
        """A run of the caller, and its calls while it is open. Raises MCPError: unknown, or not for this client."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
        require_client_extension(context, TASKS)
        _check_name_header(context)
        owner = caller_of(context).run_owner

        def find(tables: RunTables) -> tuple[RunRow, Sequence[CallRow]]:
            row = find_run(tables, run, owner)
            return row, tables.calls(row.id) if row.state in OPEN else ()

        try:
            return await self.runs.store_or_error().read(find)
        except RunsError as error:
            raise MCPError(types.INVALID_PARAMS, f"task not found: {error}") from None


def _check_name_header(context: Context) -> None:
    """Raise MCPError if the header that names the task for proxies names another task (SEP-2243, SEP-2663).

    The SDK checks this header of its own methods. Its client does not send one with those of extensions.
    """
    task = (context.params or {}).get("taskId")
    headers = context.request.headers if context.request is not None else {}
    if task and MCP_NAME_HEADER in headers and decode_header_value(headers[MCP_NAME_HEADER]) != task:
        raise MCPError(types.HEADER_MISMATCH, f"the header {MCP_NAME_HEADER} does not match the taskId")


def _task(row: RunRow, keep_days: float, status: Status, **more: Any) -> Task:
    kept_until = (row.ended or row.expires) + keep_days * DAY_SECONDS
    return Task(
        task_id=row.id,
        status=status,
        created_at=iso(row.began),
        last_updated_at=iso(row.updated),
        ttl_ms=round((kept_until - row.began) * 1_000),
        **more,
    )


def _asked(context: Context, calls: Sequence[CallRow]) -> dict[str, CallRow]:
    """The calls about which this client's person can be asked, by the key of the question."""
    can = context.session.client_capabilities
    if can is None or can.elicitation is None or not can_show_forms(can.elicitation):
        return {}
    return {f"call-{call.seq}": call for call in calls if call.asks}


def _decision(key: str, answer: Json) -> dict[str, Any] | None:
    """The person's decision; None if the person left it open. Raises MCPError: the answer is not valid."""
    message = f"inputResponses: {key!r} decides nothing"
    try:
        action = types.ElicitResult.model_validate(answer, by_name=False).action
    except ValidationError:
        raise MCPError(types.INVALID_PARAMS, message) from None
    decision = decision_of(answer)
    if decision is None and action == "accept":
        raise MCPError(types.INVALID_PARAMS, message)
    return decision
