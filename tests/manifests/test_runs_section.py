"""The section `runs`: its defaults, its secrets, and what it refuses."""

import base64

import pytest

from manifests.portal_manifest import RunsSettings
from tests.manifests.conftest import Load, Problems

KEY = "a-key-of-32-characters-in-all-ok"
SIGNING = "whsec_" + base64.b64encode(bytes(24)).decode()
WEBHOOK = "runs: {{webhooks: [{{url: {url}, secret: {secret}}}]}}\n"


def test_defaults_are_those_of_the_design(load: Load) -> None:
    assert load("runs:\n").portal.runs == RunsSettings()
    assert RunsSettings().model_dump() == {
        "store": None,
        "key": None,
        "keep_days": 7,
        "max_age_days": 30,
        "park_after_seconds": 2,
        "quota_mib": 1024,
        "public_url": None,
        "webhooks": (),
    }


def test_references_are_resolved_and_their_values_are_secrets(load: Load) -> None:
    text = "runs: {key: '${KEY}', public_url: '${PUBLIC:-https://portal.example}', webhooks: [%s]}\n"
    webhook = "{url: 'https://hooks.example/x', secret: '${SIGNING}', events: [run.ok]}"
    manifest = load(text % webhook, KEY=KEY, SIGNING=SIGNING)
    runs = manifest.portal.runs
    assert runs.key and runs.key.get_secret_value() == KEY
    assert runs.public_url == "https://portal.example"
    assert runs.webhooks[0].secret.get_secret_value() == SIGNING
    assert runs.webhooks[0].events == ("run.ok",)
    assert manifest.hidden == {KEY, SIGNING}
    assert KEY not in repr(runs) and SIGNING not in repr(runs) and "hooks.example" not in repr(runs)


def test_webhook_gets_all_events_unless_it_lists_some(load: Load) -> None:
    [webhook] = load(WEBHOOK.format(url="http://127.0.0.1:8000/h", secret=KEY)).portal.runs.webhooks
    assert set(webhook.events) == {
        "run.waiting",
        "run.ok",
        "run.error",
        "run.cancelled",
        "run.expired",
        "run.stuck",
    }


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("runs: {key: short-hunter2}\n", "runs.key", ["at least 16 characters"]),
        ("runs: {key: 'hunter2 with spaces in it'}\n", "runs.key", ["without spaces"]),
        ("runs: {key: 1234567890123456}\n", "runs.key", ["not a string"]),
        (WEBHOOK.format(url="http://hooks.example/hunter2", secret=KEY), "runs.webhooks.0.url", ["https://"]),
        (WEBHOOK.format(url="https://a.example", secret="hunter2"), "runs.webhooks.0.secret", ["16"]),
        (WEBHOOK.format(url="https://a.example", secret="whsec_hunter2hunter2"), "runs.webhooks.0.secret", ["24"]),
        (WEBHOOK.format(url="https://a.example", secret="whsec_hunter2_hunter2"), "runs.webhooks.0.secret", ["24"]),
        ("runs: {keep_days: 0}\n", "runs.keep_days", ["greater than 0"]),
        ("runs: {public_url: portal.example}\n", "runs.public_url", ["https://"]),
        (f"runs: {{webhooks: [{{url: 'https://a', secret: {KEY}, events: [run.done]}}]}}\n",
         "runs.webhooks.0.events.0", ["run.ok"]),
    ],
)  # fmt: skip
def test_unusable_setting_is_refused_without_showing_a_secret(
    problems: Problems, text: str, key: str, words: list[str]
) -> None:
    [problem] = problems(text)
    assert problem.key == key
    for word in words:
        assert word in f"{problem.message} {problem.hint}"
    assert "hunter2" not in f"{problem.message} {problem.hint}"
