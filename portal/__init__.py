"""The MCP server that agents talk to; the only folder that knows all others."""
