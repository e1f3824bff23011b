"""What the manifest grants to scripts besides tools, in words for docs_search and for `check`."""

from collections.abc import Iterator, Sequence

from manifests.decision import decide_fetch
from manifests.grants import FileGrant
from manifests.manifest import Manifest
from manifests.portal_manifest import Capabilities

MAX_NAMES = 20
"""Hosts and environment variables told by name; more are counted."""

_SHARED_BY = {
    "all": "all scripts share them",
    "tenant": "all scripts of the same tenant share them",
    "session": "those of a session are there in its next run",
    "run": "they are gone after the run",
}


def granted(manifest: Manifest) -> list[str]:
    """One line for each kind of grant; none, unless the manifest grants something. Holds no value of a variable."""
    return list(_lines(reachable(manifest)))


def reachable(manifest: Manifest) -> Capabilities:
    """What scripts are granted: no network where the rules leave `portal.fetch` no call."""
    fetching, capabilities = decide_fetch(manifest), manifest.portal.capabilities
    if fetching.granted and not any(budget.is_empty for budget in fetching.budgets):
        return capabilities
    return capabilities.model_copy(update={"network": None})


def reach(capabilities: Capabilities) -> str:
    """The same in a few words, for the definition of a tool."""
    network = "no network" if capabilities.network is None else "network by `await portal.fetch(url)`"
    return f"{_files_in_short(capabilities.files)}, {network}"


def _lines(capabilities: Capabilities) -> Iterator[str]:
    if (files := capabilities.files) is not None:
        may = "read and write files" if files.mode == "write" else "read the files"
        yield (
            f"scripts {may} in /workspace, their working directory, with open, pathlib, os, csv, sqlite3 and others;"
            f" {_SHARED_BY[files.share]}"
        )
    if (network := capabilities.network) is not None:
        yield (
            f"scripts fetch from {_some([*network.allow, *network.private])} with await portal.fetch(url, method=, "
            "headers=, params=, json=, body=, timeout=); its answer has status, ok, headers, text, json() and bytes"
        )
    if names := sorted(capabilities.environment):
        yield f"scripts see in os.environ: {_some(names)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _files_in_short(files: FileGrant | None) -> str:
    if files is None:
        return "no files"
    return "files in /workspace" if files.mode == "write" else "files to read in /workspace"
