"""A portal.yaml per test, loaded with an environment of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from manifests.errors import ManifestError, Problem
from manifests.loader import load_manifest
from manifests.manifest import Manifest

Load = Callable[..., Manifest]
Problems = Callable[..., list[Problem]]


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
