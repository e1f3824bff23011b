"""What docs/providers.md shows is a manifest, and names no key that there is not."""

import re
from pathlib import Path

import pytest

from manifests.portal_manifest import AuthSettings, HttpUpstream, OAuthSettings
from tests.manifests.conftest import Load

DOC = (Path(__file__).parents[2] / "docs/providers.md").read_text("utf-8")
SECRETS = {name: f"the-{name}" for name in re.findall(r"\$\{(\w+)\}", DOC)}


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL))
def test_example_is_a_manifest(load: Load, example: str) -> None:
    for upstream in load(example, **SECRETS).portal.upstreams.values():
        assert isinstance(upstream, HttpUpstream)
        assert (upstream.oauth is None) == bool(upstream.headers)


def test_keys_in_its_text_exist() -> None:
    keys = {*OAuthSettings.model_fields, *AuthSettings.model_fields}
    assert {*re.findall(r"`(?:server\.auth\.)?((?:redirect|send|token)_[a-z_]+)", DOC)} - {
        "refresh_token"
    } <= keys
