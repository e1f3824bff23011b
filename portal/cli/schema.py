"""`mcp-code-portal schema`."""

from argparse import Namespace
from importlib.resources import files

from manifests.manifest import Manifest
from portal.cli.terminal import Terminal


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print the JSON Schema of portal.yaml, as it was shipped."""
    terminal.result(files("manifests").joinpath("portal.schema.json").read_text("utf-8"))
    return 0
