"""The MCP server: two tools in both eras of the protocol. Errors become answers."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import structlog
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ListToolsResult,
    PaginatedRequestParams,
    ServerCapabilities,
    SubscriptionsListenRequestParams,
    TextContent,
)
from mcp_types import Result as McpResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.types import Receive

from manifests.json_value import Json
from manifests.kernels import PYTHON
from portal.base.caller import WITHOUT_TOKEN, Caller
from portal.base.clean_json import is_larger, sendable, sendable_json
from portal.base.errors import RunsError, refuse_kernel
from portal.base.requests import (
    DOCS_SEARCH,
    EXECUTE_CODE,
    RequestError,
    docs_search_request,
    execute_code_request,
)
from portal.base.tokens import compact, is_loaded
from portal.calls.channel import ClientChannel, Context
from portal.calls.questions import Ask, Questions, ask_by_request, comes_in_rounds
from portal.catalog.authority import effective_capabilities
from portal.records.ledger import Ledger
from portal.records.store.records import QuotaError, RunState, short_id
from portal.records.telemetry.observers import record_requests
from portal.runs.answer import GOING_WELL, Answer, Fitted, fitted
from portal.server.callers import caller_of, client_of, decider_of
from portal.server.definitions import DEFAULT_MAX_TOKENS, INPUT_SCHEMAS, instructions, tool_definitions
from portal.server.portal import Portal
from portal.server.rounds import PendingRequest
from portal.server.tasks import TASKS, Task, TaskParams, Tasks, TaskUpdateParams
from sandbox_runtime.result import RunError
from upstreams.session import client_info

log = structlog.get_logger()

Result = TypeVar("Result")

_SMALL_CHARACTERS = 20_000
_FEW_CALLS = 20


class ChangingServer(Server[Any]):
    """The SDK's server, announcing what clients are told of: changed lists of resources and of prompts.

    Since 2026-07-28 the SDK also announces changed tools and resources, to whoever may listen.
    """

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *rest: Any, **named: Any
    ) -> InitializationOptions:
        changing = NotificationOptions(prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or changing, *rest, **named)

    def get_capabilities(self, *args: Any, **named: Any) -> ServerCapabilities:
        can = super().get_capabilities(*args, **named)
        tools, resources = can.tools, can.resources and can.resources.model_copy(update={"subscribe": False})
        tools = tools and tools.model_copy(update={"list_changed": False})
        return can.model_copy(update={"tools": tools, "resources": resources})


class ListChangesHandler(ListenHandler):
    """Confirms what `ChangingServer` announces. The SDK confirms all that a client asks for, and it would wait."""

    async def __call__(self, context: Context, params: SubscriptionsListenRequestParams) -> Any:
        never = {"tools_list_changed": None, "resource_subscriptions": None}
        heard = params.notifications.model_copy(update=never)
        return await super().__call__(context, params.model_copy(update={"notifications": heard}))


def build_server(portal: Portal) -> Server[Any]:
    """The server of one portal, for any transport. Connections share it; it holds no state per connection.

    Source: MCP 2026-07-28, server/tools; older revisions are served by the SDK.
    """

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        modules = portal.baked.modules if portal.baked else ()
        view = portal.views[caller_of(context).profile]
        capabilities, on = effective_capabilities(view.manifest), view.manifest.portal.server.switched_on
        return ListToolsResult(tools=tool_definitions(capabilities, modules, on))

    async def call_tool(context: Context, params: CallToolRequestParams) -> McpResult:
        if params.name not in (DOCS_SEARCH, EXECUTE_CODE):
            message = f"unknown tool {params.name[:100]!r}; the tools are {DOCS_SEARCH} and {EXECUTE_CODE}"
            raise MCPError(INVALID_PARAMS, message)
        call = _call_in_rounds if comes_in_rounds(context, params) else _call
        return await _until_disconnected(context, partial(call, portal, context, params))

    server = ChangingServer(
        "mcp-code-portal",
        version=client_info().version,
        title="MCP code portal",
        instructions=instructions(portal.manifest.portal.server.switched_on),
        on_list_tools=list_tools,
        on_call_tool=call_tool,  # type: ignore[arg-type]  # a Task, as the SDK does not know extensions
        get_tool_input_schema=INPUT_SCHEMAS.get,  # else the SDK calls `list_tools` before each call
        **_resource_handlers(portal),
    )
    if portal.runs.store is not None:
        tasks = _tasks(portal)
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, _handler(portal, tasks.get))
        server.add_request_handler("tasks/update", TaskUpdateParams, _handler(portal, tasks.update))
        server.add_request_handler("tasks/cancel", TaskParams, _handler(portal, tasks.cancel))
    record_requests(server, portal.telemetry)
    is_whole = portal.manifest.portal.server.structured
    log.info("answer_form_set", form="text and structuredContent" if is_whole else "text")
    return server


def _tasks(portal: Portal) -> Tasks:
    return Tasks(portal.runs, partial(fit_answer, portal))


def _resource_handlers(portal: Portal) -> dict[str, Any]:
    """The handlers for what `server.offers` lists."""
    offers, resources = portal.manifest.portal.server.offers, portal.resources
    handlers: dict[str, Any] = {}
    if "resources" in offers:
        handlers["on_list_resources"] = _handler(portal, partial(resources.listed, "resources"))
        listed = partial(resources.listed, "resource_templates")
        handlers["on_list_resource_templates"] = _handler(portal, listed)
        handlers["on_read_resource"] = _handler(portal, resources.read_resource)
    if "prompts" in offers:
        handlers["on_list_prompts"] = _handler(portal, partial(resources.listed, "prompts"))
        handlers["on_get_prompt"] = _handler(portal, resources.get_prompt)
    if offers:
        handlers["on_subscriptions_listen"] = ListChangesHandler(resources.changes.bus)
    return handlers


def _handler(
    portal: Portal, handler: Callable[[Context, Any], Awaitable[Any]]
) -> Callable[[Context, Any], Awaitable[Any]]:
    """Wrap a handler: report progress, cancel it when the client disconnects, answer every error."""

    async def work(context: Context, params: Any) -> Any:
        try:
            return await handler(context, params)
        except MCPError as error:  # returned, and raised outside of the task groups, which would wrap it
            return error

    async def with_progress(context: Context, params: Any) -> Any:
        channel = ClientChannel()
        async with channel.open(context, Ledger(), portal.manifest.portal.server.progress_seconds):
            channel.stage("waiting for upstreams")
            return await _catch_errors(
                partial(work, context, params), lambda _, message, hint: MCPError(INTERNAL_ERROR, message)
            )

    async def handle(context: Context, params: Any) -> Any:
        return await _until_disconnected(context, partial(with_progress, context, params))

    return handle


async def _until_disconnected(context: Context, work: Callable[[], Awaitable[Result | MCPError]]) -> Result:
    """Return the result, or raise the error that is one. The work is cancelled if the client disconnects first.

    Since revision 2026-07-28 the SDK cancels by itself. Earlier revisions let a client reconnect for its answer. That
    needs an event store, which the portal does not have, so no one could receive the answer.

    Source: MCP 2025-11-25, basic/transports#resumability-and-redelivery.
    """
    request = context.request
    result: Result | MCPError
    if not isinstance(request, Request) or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        result = await work()
    else:
        result = MCPError(INTERNAL_ERROR, "the client disconnected")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_gone, request.receive, tasks.cancel_scope.cancel)
            result = await work()
            tasks.cancel_scope.cancel()
    if isinstance(result, MCPError):
        raise result
    return result


async def until_gone(receive: Receive, cancel: Callable[[], None]) -> None:
    """Call `cancel` when the client of a request has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel()


def _questions(portal: Portal, context: Context, caller: Caller, ask: Ask) -> Questions:
    # Several clients may share this caller. One client's questions must not reach another.
    owner = caller.owner if caller.is_one_client else secrets.token_hex(8)
    can, decider = context.session.client_capabilities, decider_of(context)
    return Questions(ask, can, owner, caller.queue_key, portal.sampling_depths, decider)


async def _call(portal: Portal, context: Context, params: CallToolRequestParams) -> CallToolResult | Task:
    caller, ledger = caller_of(context), Ledger()
    channel = ClientChannel(_questions(portal, context, caller, ask_by_request(context)))
    async with channel.open(context, ledger, portal.manifest.portal.server.progress_seconds):
        return await _answer(portal, context, caller, params, ledger, channel)


async def _call_in_rounds(
    portal: Portal, context: Context, params: CallToolRequestParams
) -> McpResult | MCPError:
    """One round: return the result, or the questions that the client must answer first.

    The work continues between rounds, in its own task.
    """
    caller = caller_of(context)

    async def work(pending: PendingRequest) -> CallToolResult | Task:
        return await _answer(portal, context, caller, params, pending.ledger, pending.channel)

    pending = portal.rounds.joined(caller, params, partial(_questions, portal, context, caller))
    seconds = portal.manifest.portal.server.progress_seconds
    async with pending.channel.open(context, pending.ledger, seconds):
        outcome = await portal.rounds.outcome(pending, work)
    return outcome or MCPError(INVALID_PARAMS, "the request has ended without a result")


async def _answer(
    portal: Portal,
    context: Context,
    caller: Caller,
    params: CallToolRequestParams,
    ledger: Ledger,
    channel: ClientChannel,
) -> CallToolResult | Task:
    """Answer one tool call. `channel` leads to the client; the calls of a script go into `ledger`."""
    view, arguments = portal.views[caller.profile], params.arguments or {}
    on = view.manifest.portal.server.switched_on

    async def work() -> CallToolResult | Task:
        if params.name == EXECUTE_CODE:
            request = execute_code_request(arguments)
            if len(on) > 1 and request.run is None:
                portal.languages.note(caller, request.kernel or PYTHON)
            sender = replace(caller, client=client_of(context, portal.runs.mask))
            answer = await view.execution.run(request, sender, ledger, channel)
            if request.background and (task := await _tasks(portal).created(context, answer)):
                return task
            result = await fit_answer(portal, caller, answer, request.max_tokens)
            shown = sum(len(each.text.encode()) for each in result.content if isinstance(each, TextContent))
            portal.telemetry.answer_bytes.add(shown)
            portal.runs.trail.answered(answer.run_id, shown)
            return result
        asked = docs_search_request(arguments)
        kernel = asked.kernel or portal.languages.of(caller, on)
        refuse_kernel(kernel, on)
        channel.stage("waiting for upstreams that are starting")
        found = await view.docs_search.answer(replace(asked, kernel=kernel))
        is_whole = portal.manifest.portal.server.structured
        return _result(found.text, found.structured if is_whole else None)

    return await _catch_errors(work, partial(_failure_result, portal, params.name, ledger))


async def _catch_errors(
    work: Callable[[], Awaitable[Result]], failed: Callable[[str, str, str], Result]
) -> Result:
    """Return the result of the work. For an unexpected error: a code and a log reference, never internals."""
    try:
        return await work()
    except (RequestError, RunsError) as error:
        return failed(error.code, str(error), error.hint)
    except Exception as error:
        number = secrets.token_hex(4)
        log.exception("request_failed", number=number, error=type(error).__name__)
        message = f"the portal failed on this request; search its log for {number}"
        return failed("internal_error", message, "Tell the operator, or try again later.")


async def fit_answer(
    portal: Portal, caller: Caller, answer: Answer, max_tokens: int | None = None
) -> CallToolResult:
    """The answer within `server.output_tokens`. Parts that are cut are kept, and the answer names their handles.

    A value is shown whole within `max_tokens`, at most `output_tokens`; the default is the smaller of that and 2,000.
    """
    settings, notices = portal.manifest.portal.server, [*answer.notices]
    most = min(max_tokens or DEFAULT_MAX_TOKENS, settings.output_tokens)
    if max_tokens is not None and max_tokens > most:
        notices.append(f"max_tokens {max_tokens} was lowered to server.output_tokens = {most}")

    # Without a token, others may count as the same caller, so ids are secrets and are not shortened.
    name = short_id if caller.owner and caller.run_owner != WITHOUT_TOKEN else str

    async def fit(kept: dict[str, str] | None) -> Fitted:
        told = replace(answer, notices=tuple(notices)) if len(notices) > len(answer.notices) else answer
        limits = most, settings.output_tokens, kept
        work = partial(fitted, told, name, *limits, is_whole=settings.structured)
        parts: list[Json] = [told.result, told.stdout, told.error and told.error.message, *notices]
        whole = [told.structured()] if settings.structured else []
        # Not tokenized is what has no more bytes than it may have tokens. A character has at most six in JSON.
        few, many = (_SMALL_CHARACTERS,) * 2 if is_loaded() else (most // 6, settings.output_tokens // 6)
        is_large = is_larger([*parts, *told.emitted], few) or is_larger([*whole, *told.emitted], many)
        is_first = bool(told.emitted) and not is_loaded()  # the text of each block is counted
        if is_large or is_first or len(told.calls) > _FEW_CALLS:
            # In a thread: loading the encoding takes 0.3 s, truncating ten megabytes 0.1 s, and others must not wait.
            return await anyio.to_thread.run_sync(work)
        return work()  # a hop to a thread would take longer than fitting a few words

    found, handles = await fit(None), dict[str, str]()
    for key in sorted(found.cut):
        whole, owner = answer.result if key == "result" else answer.stdout, caller.run_owner
        try:
            handle = await portal.runs.results.keep(answer.run_id, key, owner, whole, answer.sources)
            handles |= {key: handle} if handle else {}
        except QuotaError as error:
            notices.append(f"The whole {key} is not kept: {error}. {error.hint}")
    if found.cut:
        found = await fit(handles)
    is_error = answer.status not in GOING_WELL
    return _result(found.text, found.structured, found.blocks, is_error=is_error)


def _failure_result(
    portal: Portal, tool: str, ledger: Ledger, code: str, message: str, hint: str
) -> CallToolResult:
    """A failure in the form of the tool's answer. It lists the calls that the script had made."""
    is_whole = portal.manifest.portal.server.structured
    if tool == EXECUTE_CODE:
        error = RunError(code, message, hint=hint)
        status: RunState = "error" if ledger.run_id else "refused"
        failed = Answer(status, ledger.run_id, error=error, calls=ledger.rows())
        found = fitted(failed, str, DEFAULT_MAX_TOKENS, output_tokens=1_000, is_whole=is_whole)
        return _result(found.text, found.structured, is_error=True)
    told = {"code": code, "message": message, "hint": hint}
    whole = {"functions": [], "total": 0, "notices": [message], "error": told}
    return _result({"error": f"{code}: {message}", "hint": hint}, whole if is_whole else None, is_error=True)


def _result(
    text: Json, structured: Json, blocks: Sequence[ContentBlock] = (), *, is_error: bool = False
) -> CallToolResult:
    """The result of a tool. It has the answer once, as text: clients differ in the form they show, and some show both.

    `structured` is the whole shape, for programs, if `server.structured` wants it; else None.
    """
    told = sendable(text if isinstance(text, str) else compact(text))
    whole = None if structured is None else sendable_json(structured)
    return CallToolResult(
        content=[TextContent(text=told), *blocks], structured_content=whole, is_error=is_error
    )
