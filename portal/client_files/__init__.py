"""The configuration files of MCP clients: what servers they name, and how the portal takes their place."""
