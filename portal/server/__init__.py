"""The MCP server and the HTTP routes of runs and sign-in."""
