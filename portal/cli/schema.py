"""`mcp-code-portal schema`."""

from argparse import Namespace

from manifests.manifest import Manifest
from manifests.portal_manifest import schema_text
from portal.cli.terminal import Terminal


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print the JSON Schema of portal.yaml, as it was shipped."""
    terminal.result(schema_text())
    return 0
