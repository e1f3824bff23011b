"""What the protocol wants around a request, by era.

The SDK's session adds the same to requests it types itself; raw ones need it here. Since 2026-07-28 every request
says in `_meta` which revision, client and capabilities it comes from, and repeats on HTTP what it is about in headers.

Source: MCP 2026-07-28, basic#_meta and basic/transports#standard-request-headers; 2025-06-18,
basic/transports#protocol-version-header.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from mcp.client import ClientSession
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    Implementation,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from manifests.json_value import Json
from upstreams.recorded_tool import RecordedTool

_DISTRIBUTION: Final = "mcp-code-portal"

IDEMPOTENCY_KEY_META: Final = "dev.mcp-code-portal/idempotency-key"
"""In `_meta` of every call of a script: text that is the same when the same call is sent again, and of no other call.

Source: MCP 2026-07-28, basic#_meta: a name of our own has a reversed domain before the slash.
"""


@cache
def client_info() -> Implementation:
    """How the portal introduces itself to upstreams. Looking up its own version takes a millisecond."""
    try:
        return Implementation(name=_DISTRIBUTION, version=version(_DISTRIBUTION))
    except PackageNotFoundError:  # run from a checkout that was never installed
        return Implementation(name=_DISTRIBUTION, version="0")


class Envelope:
    """Params and options for raw requests on one negotiated session."""

    def __init__(self, session: ClientSession, info: Implementation) -> None:
        self._version = session.protocol_version or ""
        self.is_modern = self._version in MODERN_PROTOCOL_VERSIONS
        self._meta: dict[str, Json] = {
            PROTOCOL_VERSION_META_KEY: self._version,
            CLIENT_INFO_META_KEY: info.model_dump(by_alias=True, mode="json", exclude_none=True),
            # None, unless a call says otherwise: an upstream that asks anyway gets an error.
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        self._header_maps: dict[str, dict[tuple[str, ...], str]] = {}

    def learn_headers(self, tools: tuple[RecordedTool, ...]) -> None:
        """Note which arguments each tool wants repeated as headers (`x-mcp-header`)."""
        maps = {tool.name: x_mcp_header_map(tool.input_schema) for tool in tools} if self.is_modern else {}
        self._header_maps = {name: headers for name, headers in maps.items() if headers}

    def params(self, params: dict[str, Json], meta: dict[str, Json] | None = None) -> dict[str, Json]:
        """With `_meta`: what the era wants there, and `meta`."""
        whole = {**(self._meta if self.is_modern else {}), **(meta or {})}
        return {**params, "_meta": whole} if whole else params

    def declared(self, capabilities: dict[str, Json]) -> dict[str, Json]:
        """What `_meta` of one call says that may be asked about it; before 2026-07-28 the handshake said so."""
        return {CLIENT_CAPABILITIES_META_KEY: capabilities} if self.is_modern and capabilities else {}

    def options(self, method: str, params: Mapping[str, Json] | None = None) -> CallOptions:
        """For a request that is no call."""
        headers = self._headers(method)
        named = (params or {}).get(NAME_BEARING_METHODS.get(method, ""))
        if self.is_modern and isinstance(named, str):
            headers[MCP_NAME_HEADER] = encode_header_value(named)
        return CallOptions(headers=headers)

    def call_options(
        self, tool: str, arguments: dict[str, Json], progress: ProgressFnT | None
    ) -> CallOptions:
        headers = self._headers("tools/call")
        if self.is_modern:
            headers[MCP_NAME_HEADER] = encode_header_value(tool)
            if header_map := self._header_maps.get(tool):
                headers.update(mcp_param_headers(header_map, arguments))
        options = CallOptions(headers=headers)
        if progress is not None:
            options["on_progress"] = progress
        return options

    def _headers(self, method: str) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: self._version}
        if self.is_modern:
            headers[MCP_METHOD_HEADER] = method
        return headers
