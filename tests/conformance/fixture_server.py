"""The upstream of the portal under test, over stdio: the tools, prompts and resources that the suite uses."""

import base64

import anyio
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged
from mcp.shared.exceptions import MCPError

from tests.acceptance.model import Json

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
SILENCE = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVE").decode()


def embedded(uri: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": "Embedded."}}


TEXT = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
CONTENT: dict[str, list[Json]] = {
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}],
    "test_embedded_resource": [embedded("test://embedded-resource")],
    "test_multiple_content_types": [TEXT, IMAGE, embedded("test://mixed-content-resource")],
}
"""The answers of tools; the others answer `TEXT`."""

PLAIN = (
    *("test_simple_text", "test_tool_with_progress", "test_tool_with_logging", "test_logging_tool"),
    *("test_trigger_prompt_change", "greet", "slow_compute", "confirm_delete"),
)
FAILING = ("test_error_handling", "failing_job", "protocol_error_job")


def form(message: str, required: bool = True, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": [*properties] if required else []}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def sample(text: str) -> Json:
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


STRING = {"type": "string"}
WORDS = ["active", "inactive", "pending"]
LEVELS = [{"const": word, "title": word.title()} for word in WORDS]
NAME = form("What is your name?", name=STRING)
CONFIRM = form("Please confirm", ok={"type": "boolean"})
ROOTS = {"method": "roots/list", "params": {}}
DEFAULTS = form(
    "Who are you?",
    required=False,
    name={**STRING, "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={**STRING, "enum": WORDS, "default": "active"},
    verified={"type": "boolean", "default": True},
)
ENUMS = form(
    "Please select",
    untitledSingle={**STRING, "enum": WORDS},
    titledSingle={**STRING, "oneOf": LEVELS},
    legacyEnum={**STRING, "enum": WORDS, "enumNames": [word.title() for word in WORDS]},
    untitledMulti={"type": "array", "items": {**STRING, "enum": WORDS}},
    titledMulti={"type": "array", "items": {"anyOf": LEVELS}},
)
QUESTIONS: dict[str, list[dict[str, Json]]] = {
    "test_sampling": [{"question": sample("Test prompt for sampling")}],
    "test_elicitation": [{"question": form("Who are you?", username=STRING, email=STRING)}],
    "test_elicitation_sep1034_defaults": [{"question": DEFAULTS}],
    "test_elicitation_sep1330_enums": [{"question": ENUMS}],
    "test_input_required_result_elicitation": [{"user_name": NAME}],
    "test_input_required_result_sampling": [{"capital": sample("What is the capital of France?")}],
    "test_input_required_result_list_roots": [{"client_roots": ROOTS}],
    "test_input_required_result_request_state": [{"confirm": CONFIRM}],
    "test_input_required_result_multiple_inputs": [{"name": NAME, "hi": sample("Greet"), "roots": ROOTS}],
    "test_input_required_result_multi_round": [{"step1": NAME}, {"step2": form("Colour?", color=STRING)}],
    "test_input_required_result_tampered_state": [{"confirm": CONFIRM}],
    "test_input_required_result_capabilities": [{"either": NAME}],
    "test_streaming_elicitation": [{"user_name": NAME}],
    "test_tool_with_task": [{"user_name": NAME}],
    "multi_input": [{"user_name": NAME, "confirm": CONFIRM}],
}
"""The questions of tools before they answer, by round."""

TOOLS = (*CONTENT, *PLAIN, *FAILING, *QUESTIONS)
PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_image": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_input_required_result_prompt": (),
}
"""Their arguments."""

RESOURCES = ("test://static-text", "test://static-binary", "test://template/")
BUS = InMemorySubscriptionBus()
Context = ServerRequestContext[Json]


async def list_tools(context: Context, params: Json) -> mcp.ListToolsResult:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
    return mcp.ListToolsResult.model_validate({"tools": tools})


async def call_tool(
    context: Context, params: mcp.CallToolRequestParams
) -> mcp.CallToolResult | mcp.InputRequiredResult:
    name, session = params.name, context.session
    match name:
        case "test_tool_with_progress":
            for done in (0, 50, 100):
                await session.report_progress(done, 100)
        case "test_tool_with_logging" | "test_logging_tool":
            await session.send_log_message("info", "Tool execution started")
        case "test_trigger_prompt_change":
            await BUS.publish(PromptsListChanged())
        case "protocol_error_job":
            raise MCPError(mcp.INTERNAL_ERROR, "This tool intentionally breaks the protocol")
    rounds, number = QUESTIONS.get(name, []), int(params.request_state or 0)
    if number < len(rounds):
        asked = rounds[number]
        if "either" in asked and not session.client_capabilities.elicitation:
            asked = {"either": sample("Hello")}
        return mcp.InputRequiredResult(input_requests=asked, request_state=str(number + 1))
    content = CONTENT.get(name, [TEXT])
    return mcp.CallToolResult.model_validate({"content": content, "isError": name in FAILING})


async def list_prompts(context: Context, params: Json) -> mcp.ListPromptsResult:
    prompts = [
        {
            "name": name,
            "description": f"The prompt {name}",
            "arguments": [{"name": each, "required": True} for each in arguments],
        }
        for name, arguments in PROMPTS.items()
    ]
    return mcp.ListPromptsResult.model_validate({"prompts": prompts})


async def get_prompt(
    context: Context, params: mcp.GetPromptRequestParams
) -> mcp.GetPromptResult | mcp.InputRequiredResult:
    if params.name == "test_input_required_result_prompt":
        return mcp.InputRequiredResult(input_requests={"user_name": NAME})
    given = params.arguments or {}
    blocks = {
        "test_prompt_with_image": IMAGE,
        "test_prompt_with_arguments": {"type": "text", "text": " ".join(given.values())},
        "test_prompt_with_embedded_resource": embedded(given.get("resourceUri", "")),
    }
    messages = [{"role": "user", "content": blocks.get(params.name, TEXT)}]
    return mcp.GetPromptResult.model_validate({"messages": messages})


async def list_resources(context: Context, params: Json) -> mcp.ListResourcesResult:
    resources = [{"uri": uri, "name": uri.removeprefix("test://")} for uri in RESOURCES[:2]]
    return mcp.ListResourcesResult.model_validate({"resources": resources})


async def list_templates(context: Context, params: Json) -> mcp.ListResourceTemplatesResult:
    templates = [{"uriTemplate": "test://template/{id}/data", "name": "template"}]
    return mcp.ListResourceTemplatesResult.model_validate({"resourceTemplates": templates})


async def read_resource(context: Context, params: mcp.ReadResourceRequestParams) -> mcp.ReadResourceResult:
    contents = {"mimeType": "text/plain", "text": f"This is {params.uri}."}
    if params.uri == "test://static-binary":
        contents = {"mimeType": "image/png", "blob": PIXEL}
    return mcp.ReadResourceResult.model_validate({"contents": [{"uri": params.uri, **contents}]})


async def main() -> None:
    server = Server(
        "conformance-fixture",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscriptions_listen=ListenHandler(BUS),
    )
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
