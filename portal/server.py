"""The MCP server: two tools in both eras of the protocol, and the one table that turns an error into an answer."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias

import anyio.to_thread
import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
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

from manifests.json_value import Json
from portal.answer import Answer
from portal.binary_content import without_binaries
from portal.budget.answer import fit
from portal.budget.tokens import compact, is_loaded
from portal.caller import Caller, caller_of
from portal.composition import Portal
from portal.definitions import DOCS_SEARCH, EXECUTE_CODE, INSTRUCTIONS, tool_definitions
from portal.emitted import content_blocks
from portal.granted import reachable
from portal.ledger import Ledger
from portal.passthrough.asking import Ask, Asking
from portal.passthrough.audience import Audience, audience_of
from portal.passthrough.changing_server import ChangingServer
from portal.passthrough.clean_json import sendable, sendable_json
from portal.passthrough.live_questions import comes_in_rounds, live_questions
from portal.presence import while_present
from portal.requests import RequestError, docs_search_request, execute_code_request
from sandbox_runtime.result import RunError
from upstreams.json_size import is_larger

log = structlog.get_logger()

Context: TypeAlias = ServerRequestContext[Any, Any]
"""What the SDK hands to every handler."""

_SMALL_CHARACTERS = 20_000
_FEW_CALLS = 20
_INSIDE = "the portal failed at this request; its log has it under {}"
_ABSENT = ("cancelled", "the client hung up")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a tool. `audience` hears of it until it is answered; the calls of a script go into `ledger`."""

    caller: Caller
    arguments: dict[str, Json]
    ledger: Ledger
    audience: Audience


ToolHandler: TypeAlias = Callable[[Portal, Asked], Awaitable[CallToolResult]]


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
        if params.name not in _TOOLS:
            raise MCPError(
                INVALID_PARAMS, f"unknown tool {params.name[:100]!r}: there are {', '.join(_TOOLS)}"
            )
        work = partial(_heard, portal, context, params)
        return await while_present(context, work, partial(_failure, params.name, *_ABSENT))

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
        **_offered(portal),
    )
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_log_level)
    return server


def _offered(portal: Portal) -> dict[str, Any]:
    """The handlers of what the manifest wants offered beside the tools."""
    offers, own = portal.manifest.portal.server.offers, portal.own_offer
    handlers: dict[str, Any] = {}
    if "resources" in offers:
        handlers["on_list_resources"] = _contained(portal, own.list_resources)
        handlers["on_list_resource_templates"] = _contained(portal, own.list_templates)
        handlers["on_read_resource"] = _contained(portal, own.read_resource)
    if "prompts" in offers:
        handlers["on_list_prompts"] = _contained(portal, own.list_prompts)
        handlers["on_get_prompt"] = _contained(portal, own.get_prompt)
    if offers:
        handlers["on_subscriptions_listen"] = ListenHandler(portal.offer_changes.bus)
    return handlers


def _contained(
    portal: Portal, handler: Callable[[Context, Any], Awaitable[Any]]
) -> Callable[[Context, Any], Awaitable[Any]]:
    """The same, for a client that is there and hears of it; what it did not foresee is an error with a number."""
    seconds = portal.manifest.portal.server.progress_seconds

    async def answered(context: Context, params: Any) -> Any:
        try:
            return await handler(context, params)
        except MCPError as error:
            return error
        except Exception as error:
            number = secrets.token_hex(4)
            log.exception("request_failed", number=number, error=type(error).__name__)
            return MCPError(INTERNAL_ERROR, _INSIDE.format(number))

    async def contained(context: Context, params: Any) -> Any:
        async with audience_of(
            context, Ledger(), owner="", log_level=None, keep_alive_seconds=seconds
        ) as heard:
            heard.waits_for("waiting for upstreams")
            work = partial(answered, context, params)
            answer = await while_present(context, work, partial(MCPError, INTERNAL_ERROR, _ABSENT[1]))
        if isinstance(answer, MCPError):
            raise answer
        return answer

    return contained


async def _heard(
    portal: Portal, context: Context, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    """The answer to a request whose client hears of it until it is there, and may be asked before."""
    caller, ledger = caller_of(context), Ledger()
    # Requests that may come from several clients: what is logged or asked about one of them is for no other.
    owner = caller.owner if caller.is_one_client else secrets.token_hex(8)
    capabilities, depths = context.session.client_capabilities, portal.depths

    def asking(ask: Ask) -> Asking:
        return Asking(ask, capabilities, owner, caller.share, depths)

    async def work(audience: Audience) -> CallToolResult:
        return await _guarded(params.name, portal, Asked(caller, params.arguments or {}, ledger, audience))

    async with audience_of(
        context,
        ledger,
        owner=owner,
        log_level=portal.log_levels.of(context),
        keep_alive_seconds=portal.manifest.portal.server.progress_seconds,
        asking=asking(live_questions(context)),
    ) as audience:
        if params.name == EXECUTE_CODE and comes_in_rounds(context, params):
            try:
                return await portal.parking.round(caller, params, work, ledger, audience, asking)
            except MCPError as error:  # past the task group of the audience, which would wrap it
                refused = error
        else:
            return await work(audience)
    raise refused


async def _guarded(tool: str, portal: Portal, asked: Asked) -> CallToolResult:
    """The answer of a tool; where nobody foresaw an error, a code and a number to look up, never internals."""
    try:
        return await _TOOLS[tool](portal, asked)
    except RequestError as error:
        return _failure(tool, error.code, str(error))
    except Exception as error:
        number = secrets.token_hex(4)
        log.exception("request_failed", number=number, error=type(error).__name__)
        return _failure(tool, "internal_error", _INSIDE.format(number))


async def _docs_search(portal: Portal, asked: Asked) -> CallToolResult:
    asked.audience.waits_for("waiting for upstreams that are starting")
    answer = await portal.views[asked.caller.profile].docs_search.answer(docs_search_request(asked.arguments))
    return CallToolResult(content=[_text(answer.text)], structured_content=sendable_json(answer.structured))


async def _execute_code(portal: Portal, asked: Asked) -> CallToolResult:
    request = execute_code_request(asked.arguments)
    execution = portal.views[asked.caller.profile].execution
    answer = await execution.run(request, asked.caller, asked.ledger, asked.audience)
    output_tokens = portal.manifest.portal.server.output_tokens
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
    structured, _ = fit(structured, output_tokens - emitted.tokens)
    structured = sendable_json(structured)
    return CallToolResult(
        content=[_text(compact(structured)), *emitted.blocks],
        structured_content=structured,
        is_error=answer.status != "ok",
    )


def _failure(tool: str, code: str, message: str) -> CallToolResult:
    """An answer in the shape of the tool's own."""
    if tool == EXECUTE_CODE:
        return tool_result(Answer("refused", run_id="", error=RunError(code, message)), output_tokens=1_000)
    answer = sendable_json(
        {"functions": [], "total": 0, "notices": [message], "error": {"code": code, "message": message}}
    )
    return CallToolResult(content=[_text(compact(answer))], structured_content=answer, is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=sendable(text))


_TOOLS: dict[str, ToolHandler] = {DOCS_SEARCH: _docs_search, EXECUTE_CODE: _execute_code}
