"""What the manifest grants to scripts besides tools, in words for docs_search and for `check`."""

from collections.abc import Iterator

from manifests.manifest import Manifest
from manifests.models import Capabilities

MAX_NAMES = 20
"""Environment variables told by name; more are counted."""


def granted(manifest: Manifest) -> list[str]:
    """One line for each kind of grant; none, unless the manifest grants something. Holds no value of a variable."""
    return list(_lines(manifest.portal.capabilities))


def _lines(capabilities: Capabilities) -> Iterator[str]:
    if names := sorted(capabilities.environment):
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield f"scripts see in os.environ: {', '.join(names[:MAX_NAMES])}{more}"
