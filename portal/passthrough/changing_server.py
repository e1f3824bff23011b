"""The SDK's server, which says of itself that its lists change."""

from typing import Any

from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions


class ChangingServer(Server[Any]):
    """What it offers besides tools, it tells changes of. Since 2026-07-28 the SDK says so by itself."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changing = NotificationOptions(prompts_changed=True, resources_changed=True)
        options = notification_options or changing
        return super().create_initialization_options(options, experimental_capabilities, extensions)
