"""What lazy upstreams offered when they were last listed, kept on disk from one portal to the next."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import structlog

from manifests.json_value import Json
from manifests.upstream_sections import HttpUpstream, StdioUpstream
from manifests.whole_file import write_whole
from upstreams.diagnostics import Diagnostics
from upstreams.recorded_tool import RecordedTool
from upstreams.scrubber import Scrubber
from upstreams.tool_listing import Listing
from upstreams.wire_text import MAX_MESSAGE_BYTES

log = structlog.get_logger()

_FORMAT: Final = 1


@dataclass(frozen=True)
class StoredListing:
    """What the portal knows of an upstream without asking it."""

    tools: tuple[RecordedTool, ...]
    server: str
    instructions: str | None


class ListingStore:
    """The listing of one upstream, as it is configured: under another command or URL, or with other settings, it is
    another one. `written` is its section of the manifest with references as such.

    A file that cannot be read counts as none; one that cannot be written is told in the log. Files are the user's own
    to read (mode 0600): descriptions may tell more than an upstream would tell a stranger.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        spec: StdioUpstream | HttpUpstream,
        working_folder: Path,
        written: Json = None,
    ) -> None:
        self._name = name
        self.file = folder / f"{_fingerprint(name, spec, working_folder, written)}.json"

    async def load(self) -> StoredListing | None:
        return await anyio.to_thread.run_sync(self._load)

    async def save(self, listing: StoredListing) -> None:
        await anyio.to_thread.run_sync(self._save, listing)

    def _load(self) -> StoredListing | None:
        try:
            with self.file.open("rb") as file:
                kept = json.loads(file.read(2 * MAX_MESSAGE_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(kept, dict) or kept.get("format") != _FORMAT:
            return None
        # Read as an upstream's own listing is, for it says what one said.
        listing = Listing(Diagnostics(Scrubber(())))
        listing.add_page(kept)
        server, instructions = kept.get("server"), kept.get("instructions")
        return StoredListing(
            listing.tools,
            server if isinstance(server, str) else "",
            instructions if isinstance(instructions, str) else None,
        )

    def _save(self, listing: StoredListing) -> None:
        kept: dict[str, Json] = {
            "format": _FORMAT,
            "upstream": self._name,
            "server": listing.server,
            "instructions": listing.instructions,
            "tools": [_as_listed(tool) for tool in listing.tools],
        }
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.file, json.dumps(kept).encode(), is_lasting=False)
        except OSError as error:
            log.warning("listing_not_kept", upstream=self._name, reason=error.strerror)


def _as_listed(tool: RecordedTool) -> dict[str, Json]:
    listed = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
        "inputExamples": list(tool.examples) or None,
    }
    return {key: value for key, value in listed.items() if value is not None}


def _fingerprint(name: str, spec: StdioUpstream | HttpUpstream, folder: Path, written: Json) -> str:
    """Of everything that says which server it is and what it offers, as it is written: of a reference its name."""
    if isinstance(spec, StdioUpstream):
        identity: list[Json] = [spec.command, list(spec.args), spec.cwd, sorted(spec.env)]
    else:
        identity = [spec.url, spec.transport, sorted(spec.headers)]
    settings = [written.get(key) for key in ("env", "headers", "oauth")] if isinstance(written, dict) else []
    text = json.dumps([name, str(folder.resolve()), *identity, *settings], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
