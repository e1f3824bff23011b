"""An MCP server that sends its own traces, as the SDK records them by itself, to the collector of argv[1]."""

import sys

from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

server = MCPServer("traced")


@server.tool()
async def note(text: str) -> str:
    """Note a text and answer it."""
    return text


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "upstream"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{sys.argv[1]}/v1/traces")))
    trace.set_tracer_provider(provider)
    server.run()
