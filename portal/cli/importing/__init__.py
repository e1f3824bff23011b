"""Imports the servers that other MCP clients are configured with."""
