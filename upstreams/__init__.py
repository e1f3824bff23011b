"""The client side of MCP: one supervised connection per upstream, its tools as recorded, its health."""
