"""A portal.yaml per test, loaded with an environment of its own, and what it decides."""

from collections.abc import Callable
from pathlib import Path

import pytest

from manifests.decision import Decision, ListedTool, decide, decide_arguments
from manifests.errors import ManifestError, Problem
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.manifest import Manifest
from manifests.names import identifier

Load = Callable[..., Manifest]
Problems = Callable[..., list[Problem]]
READ_ONLY, DESTRUCTIVE, OPEN_WORLD = (
    {hint: True} for hint in ("readOnlyHint", "destructiveHint", "openWorldHint")
)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    path: Path = tmp_path_factory.mktemp("manifest") / "portal.yaml"

    def load_text(text: str | bytes, **environ: str) -> Manifest:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_manifest(path, environ)

    return load_text


@pytest.fixture(scope="module")
def problems(load: Load) -> Problems:
    def problems_of(text: str | bytes, **environ: str) -> list[Problem]:
        try:
            load(text, **environ)
        except ManifestError as error:
            return list(error.problems)
        return []

    return problems_of


@pytest.fixture(scope="module")
def rules(load: Load) -> Load:
    """A manifest with the upstream `files`, with these rules for all tools and for its own."""

    def load_rules(tools: str = "", own: str = "") -> Manifest:
        return load(f"upstreams: {{files: {{command: x, tools: {own}}}}}\ncapabilities: {{tools: {tools}}}\n")

    return load_rules


def ask(manifest: Manifest, name: str, annotations: Json = None, arguments: Json = None) -> Decision:
    """May this tool, `files.read`, be called, which declares so much; and with these arguments?"""
    upstream, _, tool = name.partition(".")
    hints = Hints.of(annotations or {})
    decision = decide(manifest, upstream=upstream, tool=tool, function=identifier(tool), hints=hints)
    return decision if arguments is None else decide_arguments(manifest, decision, arguments)


def listed(*tools: str) -> list[ListedTool]:
    return [ListedTool(tool, identifier(tool), Hints(), None) for tool in tools]
