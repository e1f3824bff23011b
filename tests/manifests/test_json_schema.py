"""The schema that ships agrees with the models, and with what the loader says."""

from pathlib import Path

import jsonschema
import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest, read_yaml
from manifests.portal_manifest import generated_schema, schema_text
from tests.manifests.conftest import Problems

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    schema = read_yaml(schema_text()).data  # JSON is YAML
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def test_shipped_schema_is_fresh() -> None:
    assert schema_text() == generated_schema(), "run: python -m manifests.portal_manifest"


@pytest.mark.parametrize(
    "path",
    sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*/portal*.yaml")]),
    ids=lambda path: str(path.relative_to(EXAMPLES)),
)
def test_examples_load_and_name_the_schema(validator: jsonschema.Draft7Validator, path: Path) -> None:
    environ = dict.fromkeys(("PORTAL_TOKEN", "TICKETS_TOKEN", "MCP_CODE_PORTAL_TOKEN"), "t")
    environ |= {"MCP_CODE_PORTAL_STORE": "postgres://db/portal", "MCP_CODE_PORTAL_KEY": "sixteen-characters"}
    assert load_manifest(path, environ).path == path
    text = path.read_text()
    validator.validate(read_yaml(text).data)
    reference = text.splitlines()[0].partition("$schema=")[2]
    assert (path.parent / reference).read_text() == schema_text()


ACCEPTED = [
    "{}",
    "upstreams:\ncapabilities:\nserver:\n",
    "upstreams: {a: {command: x, args: [a], env: {B: c}, cwd: d, tools: {allow: [], deny: ['*']}}}",
    "upstreams: {a: {command: x, env: , tools: , cwd: }, b: {url: 'HTTP://x', headers: }}",
    "upstreams: {a: {url: '${HOST}', transport: sse, headers: {A: '${T}'}, call_seconds: 1.5}}",
    "upstreams: {größe 2: {url: 'https://x/y?z', transport: sse}}",
    "capabilities: {tools: , limits: {wall_seconds: 1, memory_mib: 1024, tool_calls: 0}}",
    "server: {check: off, token: '${T}', workers: , sessions: 0}",
    "server: {allowed_hosts: ['${T}', 'a:80'], allowed_origins: ['https://a']}",
    "runs: {store: runs.db, key: sixteen-characters}",
    "runs: {webhooks: [{url: 'https://a', secret: '0123456789abcdef', events: [run.ok]}], keep_days: 0.5}",
    "capabilities: {tools: {ask: ['a.*', {annotation: destructive}]}}",
]


def test_schema_takes_what_the_loader_takes(
    validator: jsonschema.Draft7Validator, problems: Problems
) -> None:
    for text in ACCEPTED:
        assert problems(text, HOST="http://localhost/mcp", T="t") == []
        validator.validate(read_yaml(text).data)


REFUSED = [
    "[]", "x: 1", "upstreams: []", "upstreams: {a: {}}", "upstreams: {a: {command: x, url: 'http://x'}}",
    "upstreams: {a: {command: x, headers: {}}}", "upstreams: {a: {url: 'http://x', transport: http}}",
    "upstreams: {a: {command: ''}}", "upstreams: {a: {command: 5}}",
    "upstreams: {a: {command: x, args: [5]}}", "upstreams: {a: {command: x, call_seconds: 0}}",
    "upstreams: {a: {command: x, tools: {allow: '*'}}}", "capabilities: {limits: {wall_seconds: 0}}",
    "capabilities: {limits: {tool_calls: -1}}", "capabilities: {limits: {tool_calls: '5'}}",
    "capabilities: {limits: {tool_cals: 5}}", "server: {check: maybe}", "server: {workers: 0}",
]  # fmt: skip


def test_what_the_loader_refuses_for_its_structure_the_schema_refuses(
    validator: jsonschema.Draft7Validator, problems: Problems
) -> None:
    for text in REFUSED:
        assert problems(text), text
        assert not validator.is_valid(read_yaml(text).data), text


def test_every_key_is_described() -> None:
    schema: Json = read_yaml(schema_text()).data
    for section in (schema, *schema["definitions"].values()):
        assert all("description" in each for each in section["properties"].values()), section
