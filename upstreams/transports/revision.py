"""What requests carry of the protocol revision that a connection speaks."""

from collections.abc import Iterable, Mapping
from typing import Final

import mcp_types as types
from mcp.shared import inbound
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from manifests.json_value import Json
from upstreams.tools import RecordedTool

_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()
"""Adds the current span to `_meta`, if there is one. Source: SEP-414."""


class Revision:
    """Adds the headers and `_meta` of a revision to raw requests.

    Requests carry their protocol revision: before 2026-07-28 in a header, since then also in `_meta`, with the client
    and its capabilities. The SDK's session adds the same to its own typed requests.

    Source: MCP 2026-07-28, basic#_meta and basic/transports#standard-request-headers; 2025-06-18,
    basic/transports#protocol-version-header.
    """

    def __init__(self, version: str, client: types.Implementation) -> None:
        self.version = version
        self.is_modern = version in MODERN_PROTOCOL_VERSIONS
        """Whether it is 2026-07-28 or later, without a handshake."""
        self._meta: dict[str, Json] = {}
        if self.is_modern:
            info = client.model_dump(by_alias=True, mode="json", exclude_none=True)
            # Declares no capabilities: an upstream that asks anyway gets an error.
            self._meta = {types.CLIENT_INFO_META_KEY: info, types.CLIENT_CAPABILITIES_META_KEY: {}}
            self._meta[types.PROTOCOL_VERSION_META_KEY] = version
        self._header_maps: dict[str, dict[tuple[str, ...], str]] = {}
        """The arguments of each tool to repeat as headers (`x-mcp-header`)."""

    def use(self, tools: Iterable[RecordedTool]) -> None:
        """Repeat the arguments of these tools as headers, where their schemas and the revision say so."""
        if self.is_modern:
            maps = {tool.name: inbound.x_mcp_header_map(tool.input_schema) for tool in tools}
            self._header_maps = {name: headers for name, headers in maps.items() if headers}

    def fault_of(self, tool: RecordedTool) -> str | None:
        """Why its `x-mcp-header` is invalid. Tools with such a one are excluded since 2026-07-28."""
        return inbound.find_invalid_x_mcp_header(tool.input_schema) if self.is_modern else None

    def params(
        self, params: dict[str, Json], meta: Mapping[str, Json], *, is_traced: bool = False
    ) -> dict[str, Json]:
        """The params of a request, with this `_meta`, the revision's own, and the current span if `is_traced`."""
        whole = {**self._meta, **meta}
        if is_traced:
            _TRACE_CONTEXT.inject(whole)
        return {**params, "_meta": whole} if whole else params

    def headers(self, method: str, params: Mapping[str, Json]) -> dict[str, str]:
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: self.version}
        if not self.is_modern:
            return headers
        headers[inbound.MCP_METHOD_HEADER] = method
        named = params.get(inbound.NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(named)
        if method == "tools/call" and (header_map := self._header_maps.get(str(named))):
            headers |= inbound.mcp_param_headers(header_map, params["arguments"])
        return headers

    def page(self, raw: dict[str, Json]) -> dict[str, Json]:
        """The page without an empty cursor, which ends a listing before 2026-07-28."""
        is_last = raw.get("nextCursor") == "" and not self.is_modern
        return {**raw, "nextCursor": None} if is_last else raw
