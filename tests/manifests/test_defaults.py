"""`defaults` in a manifest, and the name of the file with its variables."""

from pathlib import Path

import pytest

from manifests.errors import ManifestError
from manifests.loader import load_manifest
from tests.manifests.conftest import Load, Problems


def test_literal_default_is_what_a_reference_falls_back_to(load: Load) -> None:
    text = 'upstreams: {a: {command: x, args: ["${CA}"]}}\ndefaults: {env: {CA: /default, B: "${NOT:-}"}}\n'
    assert load(text).portal.upstreams["a"].model_dump()["args"] == ("/default",)
    assert load(text, CA="/set").portal.upstreams["a"].model_dump()["args"] == ("/set",)


def test_secret_among_the_defaults_is_masked(load: Load) -> None:
    manifest = load('defaults: {env: {HTTPS_PROXY: "http://me:${PW}@proxy"}}\n', PW="hunter2hunter2")
    assert manifest.portal.defaults.env == {"HTTPS_PROXY": "http://me:hunter2hunter2@proxy"}
    assert manifest.hidden == {"hunter2hunter2"}


@pytest.mark.parametrize(
    "text", ["defaults: []", "defaults: {env: x}", "defaults: {env: {A: 1}}", "defaults: {evn: {}}"]
)
def test_wrong_defaults_are_a_problem(problems: Problems, text: str) -> None:
    assert [problem.line for problem in problems(text)] == [1]


def test_error_names_the_file_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pi.yaml"
    path.write_text('upstreams: {a: {command: "${A}"}}\n')
    with pytest.raises(ManifestError) as refused:
        load_manifest(path, {})
    assert "pi.env" in refused.value.problems[0].hint


@pytest.mark.parametrize("key", ["comand", "commnd", "urll", "Command"])
def test_misspelt_command_or_url_is_recognized(problems: Problems, key: str) -> None:
    [problem] = problems(f"upstreams:\n  a: {{{key}: x}}\n")
    assert "Did you mean" in problem.hint
