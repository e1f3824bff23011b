"""What both tools tell whoever has not configured anything yet."""

SMALLEST_MANIFEST = (
    "The smallest portal.yaml that helps: "
    'upstreams: {time: {command: uvx, args: ["mcp-server-time"]}} (uvx comes with uv)'
)

NO_UPSTREAMS = (
    f"no upstreams are configured, so there are no functions yet. {SMALLEST_MANIFEST} — pass it with --config, "
    "$MCP_CODE_PORTAL_CONFIG or as ./portal.yaml. execute_code runs plain Python meanwhile."
)
