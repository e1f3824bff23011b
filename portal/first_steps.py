"""What both tools tell whoever has not configured anything yet."""

NO_UPSTREAMS = (
    "no upstreams are configured, so there are no functions yet. The smallest portal.yaml that helps: "
    'upstreams: {time: {command: uvx, args: ["mcp-server-time"]}} (uvx comes with uv) — pass it with --config, '
    "$MCP_CODE_PORTAL_CONFIG or as ./portal.yaml. execute_code runs plain Python meanwhile."
)
