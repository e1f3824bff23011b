"""The MCP server: two tools in both eras of the protocol, whose errors become answers."""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    SetLevelRequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from portal.authority import reachable
from portal.budget.content import content_blocks, without_binaries
from portal.budget.excerpt import fit
from portal.budget.tokens import compact, is_loaded
from portal.composition import Portal
from portal.definitions import (
    DOCS_SEARCH,
    EXECUTE_CODE,
    INSTRUCTIONS,
    RequestError,
    docs_search_request,
    execute_code_request,
    tool_definitions,
)
from portal.execution import Answer, with_effects
from portal.ledger import Ledger
from portal.passthrough.clean_json import is_larger, sendable, sendable_json
from portal.passthrough.notifications import ClientChannel
from portal.passthrough.questions import Ask, Questions, ask_by_request, comes_in_rounds
from portal.passthrough.rounds import PendingRequest
from portal.sessions import Caller, caller_of
from sandbox_runtime.result import RunError

log = structlog.get_logger()

Context: TypeAlias = ServerRequestContext[Any, Any]
"""What the SDK hands to every handler."""

Result = TypeVar("Result")

_SMALL_CHARACTERS = 20_000
_FEW_CALLS = 20


class ChangingServer(Server[Any]):
    """The SDK's server, which says of its lists that they change. Since 2026-07-28 the SDK says so by itself."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *rest: Any, **named: Any
    ) -> InitializationOptions:
        changing = NotificationOptions(prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or changing, *rest, **named)


def build_server(portal: Portal) -> Server[Any]:
    """The server of one portal, for any transport. Connections share it; it keeps no state of theirs.

    Source: MCP 2026-07-28, server/tools; older revisions are served by the SDK.
    """

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        modules = portal.baked.modules if portal.baked else ()
        view = portal.views[caller_of(context).profile]
        return ListToolsResult(tools=tool_definitions(reachable(view.manifest), modules))

    async def call_tool(
        context: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.name not in (DOCS_SEARCH, EXECUTE_CODE):
            told = f"unknown tool {params.name[:100]!r}: there are {DOCS_SEARCH}, {EXECUTE_CODE}"
            raise MCPError(INVALID_PARAMS, told)
        call = _call_in_rounds if comes_in_rounds(context, params) else _call
        answer = await _until_disconnected(context, partial(call, portal, context, params))
        if isinstance(answer, MCPError):
            raise answer
        return answer or _failure(params.name, "cancelled", "the client hung up")

    async def set_log_level(context: Context, params: SetLevelRequestParams) -> EmptyResult:
        portal.log_levels.set(context, params.level)
        return EmptyResult()

    server = ChangingServer(
        "mcp-code-portal",
        version=version("mcp-code-portal"),
        title="MCP code portal",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **_resource_handlers(portal),
    )
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_log_level)
    return server


def _resource_handlers(portal: Portal) -> dict[str, Any]:
    """The handlers of what the manifest wants offered beside the tools."""
    offers, resources = portal.manifest.portal.server.offers, portal.resources
    handlers: dict[str, Any] = {}
    if "resources" in offers:
        handlers["on_list_resources"] = _handled(portal, resources.list_resources)
        handlers["on_list_resource_templates"] = _handled(portal, resources.list_templates)
        handlers["on_read_resource"] = _handled(portal, resources.read_resource)
    if "prompts" in offers:
        handlers["on_list_prompts"] = _handled(portal, resources.list_prompts)
        handlers["on_get_prompt"] = _handled(portal, resources.get_prompt)
    if offers:
        handlers["on_subscriptions_listen"] = ListenHandler(portal.list_changes.bus)
    return handlers


def _handled(
    portal: Portal, handler: Callable[[Context, Any], Awaitable[Any]]
) -> Callable[[Context, Any], Awaitable[Any]]:
    """The same, with progress for the client, cancelled when it hangs up, and with an answer for every error."""

    async def work(context: Context, params: Any) -> Any:
        try:
            return await handler(context, params)
        except MCPError as error:  # a value, until the task groups are left: they would wrap it
            return error

    async def answered(context: Context, params: Any) -> Any:
        channel = ClientChannel()
        async with _notified(portal, context, channel, Ledger()):
            channel.stage("waiting for upstreams")
            return await _guarded(
                partial(work, context, params), lambda _, message: MCPError(INTERNAL_ERROR, message)
            )

    async def handle(context: Context, params: Any) -> Any:
        answer = await _until_disconnected(context, partial(answered, context, params))
        if answer is None:
            raise MCPError(INTERNAL_ERROR, "the client hung up")
        if isinstance(answer, MCPError):
            raise answer
        return answer

    return handle


async def _until_disconnected(context: Context, work: Callable[[], Awaitable[Result]]) -> Result | None:
    """What the work comes to; None if its client hung up before, which cancels it.

    The SDK does so itself since revision 2026-07-28. The earlier ones let a client come back for its answer, which
    takes a store of events that the portal has not: nobody could be told.

    Source: MCP 2025-11-25, basic/transports#resumability-and-redelivery.
    """
    request = context.request
    if not isinstance(request, Request) or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return await work()
    result: Result | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        result = await work()
        tasks.cancel_scope.cancel()
    return result


def _notified(
    portal: Portal, context: Context, channel: ClientChannel, ledger: Ledger
) -> AbstractAsyncContextManager[None]:
    """Progress and log messages for the client of this request, as long as this is open."""
    seconds = portal.manifest.portal.server.progress_seconds
    return channel.open(context, ledger, portal.log_levels.of(context), seconds)


def _questions(portal: Portal, context: Context, caller: Caller, ask: Ask) -> Questions:
    # Requests that may come from several clients: what is logged or asked about one of them is for no other.
    owner = caller.owner if caller.is_one_client else secrets.token_hex(8)
    return Questions(ask, context.session.client_capabilities, owner, caller.share, portal.sampling_depths)


async def _call(portal: Portal, context: Context, params: CallToolRequestParams) -> CallToolResult:
    caller, ledger = caller_of(context), Ledger()
    channel = ClientChannel(_questions(portal, context, caller, ask_by_request(context)))
    async with _notified(portal, context, channel, ledger):
        return await _answered(portal, params, caller, ledger, channel)


async def _call_in_rounds(
    portal: Portal, context: Context, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult | MCPError:
    """One round: the result, or what the client is asked before there is one.

    The work goes on between rounds, in a task of its own.
    """
    caller = caller_of(context)

    async def work(pending: PendingRequest) -> CallToolResult:
        return await _answered(portal, params, caller, pending.ledger, pending.channel)

    pending = portal.rounds.joined(caller, params, partial(_questions, portal, context, caller))
    async with _notified(portal, context, pending.channel, pending.ledger):
        portal.rounds.start(pending, work)
        outcome = await portal.rounds.outcome(pending)
    return outcome or MCPError(INVALID_PARAMS, "the request has ended without a result")


async def _answered(
    portal: Portal, params: CallToolRequestParams, caller: Caller, ledger: Ledger, channel: ClientChannel
) -> CallToolResult:
    """`channel` is the client until this is answered; a script's calls go into `ledger`."""
    view, arguments = portal.views[caller.profile], params.arguments or {}

    async def work() -> CallToolResult:
        if params.name == EXECUTE_CODE:
            answer = await view.execution.run(execute_code_request(arguments), caller, ledger, channel)
            return await _fitted(answer, portal.manifest.portal.server.output_tokens)
        channel.stage("waiting for upstreams that are starting")
        found = await view.docs_search.answer(docs_search_request(arguments))
        return CallToolResult(content=[_text(found.text)], structured_content=sendable_json(found.structured))

    return await _guarded(work, partial(_failure, params.name, ledger=ledger))


async def _guarded(work: Callable[[], Awaitable[Result]], failed: Callable[[str, str], Result]) -> Result:
    """What the work comes to. Where nobody foresaw an error: a code and a number to look up, never internals."""
    try:
        return await work()
    except RequestError as error:
        return failed(error.code, str(error))
    except Exception as error:
        number = secrets.token_hex(4)
        log.exception("request_failed", number=number, error=type(error).__name__)
        return failed("internal_error", f"the portal failed at this request; its log has it under {number}")


async def _fitted(answer: Answer, output_tokens: int) -> CallToolResult:
    most = _SMALL_CHARACTERS if is_loaded() else output_tokens // 2
    if is_larger([answer.stdout, answer.result, *answer.emitted], most) or len(answer.calls) > _FEW_CALLS:
        # In a thread: ten megabytes take a tenth of a second to cut, and other clients wait for nobody.
        return await anyio.to_thread.run_sync(tool_result, answer, output_tokens)
    return tool_result(answer, output_tokens)


def tool_result(answer: Answer, output_tokens: int) -> CallToolResult:
    """The same facts in `content` and in `structuredContent`: some clients show the model only one of them."""
    emitted = content_blocks(answer.emitted, output_tokens // 2)
    result, left_out = without_binaries(answer.result)
    structured = replace(answer, result=result).structured()
    structured["notices"].extend([*left_out, *emitted.notices])
    structured = fit(structured, output_tokens - emitted.tokens)
    structured = sendable_json(structured)
    return CallToolResult(
        content=[_text(compact(structured)), *emitted.blocks],
        structured_content=structured,
        is_error=answer.status != "ok",
    )


def _failure(tool: str, code: str, message: str, ledger: Ledger | None = None) -> CallToolResult:
    """An answer in the shape of the tool's own. What a script's calls did before must be told whatever failed."""
    if tool == EXECUTE_CODE:
        error = RunError(code, message)
        if ledger is None or not ledger.run_id:
            return tool_result(Answer("refused", run_id="", error=error), output_tokens=1_000)
        failed = Answer("error", ledger.run_id, error=with_effects(error, ledger), calls=ledger.rows())
        return tool_result(failed, output_tokens=1_000)
    answer = sendable_json(
        {"functions": [], "total": 0, "notices": [message], "error": {"code": code, "message": message}}
    )
    return CallToolResult(content=[_text(compact(answer))], structured_content=answer, is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=sendable(text))
