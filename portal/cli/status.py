"""`mcp-code-portal status`: what all portals of this user do, in one screen.

Running portals tell it themselves, on their sockets; the runs of those that ended are read from their stores. It has to
answer in half a second, so it is run without a manifest, and imports neither pydantic, nor structlog, nor the SDK.
"""

import json
import socket
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from manifests.errors import ManifestError
from manifests.own_files import check_state
from portal.app.peer import is_from
from portal.app.running import PORTALS, RunningPortal, address, outer_portals
from portal.base.plain_text import shown_path
from portal.base.times import age
from portal.base.tokens import BYTES_OF_TOKEN
from portal.cli.terminal import Terminal, counted
from portal.console.needs import Need, approvals
from portal.records.store.places import holding, manifest_of, open_tables
from portal.records.store.records import StoreError, short_id

ANSWER_SECONDS: Final = 0.3
"""A portal that takes longer is told as one that does not answer."""

_MAX_NEEDS: Final = 10


def command(options: Namespace) -> int:
    """Print it. Exits with 1 if anything needs a person or is down, and with 2 if its files are another user's."""
    terminal = Terminal()
    try:
        check_state(PORTALS)
    except ManifestError as error:
        terminal.error(*error.lines())
        return 2
    portals = outer_portals()
    with ThreadPoolExecutor(max(len(portals), 1)) as threads:
        found = [*threads.map(_asked, portals)]
    sections = [*found, *_left()]
    if options.json:
        terminal.json([told for _, told in found])
    else:
        for heading, told in sections:
            for line in (heading, *_details(told)):
                terminal.line(line)
        if not portals:
            start = "mcp-code-portal serve --http 8790"
            terminal.note(f"no portal is running. An MCP client starts one, or: {start}")
    return int(any(told["needs_you"] for _, told in sections))


def _asked(portal: RunningPortal) -> tuple[str, dict[str, Any]]:
    """A heading, and what the portal tells of itself. Of one that does not answer, that this needs a person. Blocks."""
    try:
        with closing(HTTPConnection("portal")) as http, address(portal.socket) as path:
            http.sock = socket.socket(socket.AF_UNIX)
            http.sock.settimeout(ANSWER_SECONDS)
            http.sock.connect(path)
            if not is_from(http.sock, portal.pid):
                raise ConnectionRefusedError
            http.request("GET", "/status")
            told = dict(json.loads(http.getresponse().read()))
            up = f"up {age(portal.socket.stat().st_mtime)}"
    except (OSError, HTTPException, ValueError):
        why = "this portal does not answer: it starts, is stopped, or is of an earlier version"
        told = {"pid": portal.pid, "manifest": portal.manifest, "transport": portal.transport, "client": ""}
        told |= {"needs_you": [asdict(Need("down", why))], "upstreams": [], "last_day": None}
        up = ""
    path = shown_path(portal.manifest) or "without a manifest"
    return "  ".join(filter(None, (path, portal.transport, told["client"], f"pid {portal.pid}", up))), told


def _left() -> Iterator[tuple[str, dict[str, Any]]]:
    """The stores in the state folder that have open runs, and no portal that would go on with them."""
    for path in holding():
        # One that is encrypted, or of another format, is left out.
        with suppress(StoreError), closing(open_tables(path, None)) as tables:
            open_runs = sum(tables.open_counts().values())
            if open_runs and not tables.has_replicas():
                heading = f"{manifest_of(tables)}  ended, with {counted(open_runs, 'open run')}"
                needs = approvals(tables, tables.listed(is_asking=True))
                yield heading, {"needs_you": [asdict(each) for each in needs]}


def _details(told: Mapping[str, Any]) -> Iterator[str]:
    needs = told["needs_you"]
    for need in needs[:_MAX_NEEDS]:
        call = f"run {short_id(need['run'])} call {need['seq']}" if need["run"] else ""
        since = f"{age(need['at'])} ago" if need["at"] else ""
        yield f"  needs you  {'  '.join(filter(None, (need['what'], call, since, need['do'])))}"
    if len(needs) > _MAX_NEEDS:
        yield f"  needs you  … and {len(needs) - _MAX_NEEDS} more"
    if upstreams := Counter(each["status"].replace("_", " ") for each in told.get("upstreams", ())):
        yield f"  upstreams  {' · '.join(f'{number} {status}' for status, number in upstreams.items())}"
    if (day := told.get("last_day")) and day["runs"]:
        read, of = (f"{day[name] / BYTES_OF_TOKEN:,.0f}" for name in ("answer_bytes", "result_bytes"))
        yield f"  24 h       {counted(day['runs'], 'run')}, {day['failed']} failed, p50 {day['p50_ms']:,.0f} ms"
        yield f"             about {read} of {of} tokens read"
