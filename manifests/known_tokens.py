"""Credentials that begin as those of a well-known service do. A manifest should hold a reference in their place."""

import re
from collections.abc import Iterator
from typing import Final

from manifests.json_value import Json
from manifests.yaml_source import KeyPath

_PREFIXES: Final = {
    "github_pat_": "a GitHub token",
    "ghp_": "a GitHub token",
    "gho_": "a GitHub token",
    "ghu_": "a GitHub token",
    "ghs_": "a GitHub token",
    "glpat-": "a GitLab token",
    "sk-ant-": "an Anthropic API key",
    "sk-": "an OpenAI API key",
    "sk_live_": "a Stripe key",
    "rk_live_": "a Stripe key",
    "xoxb-": "a Slack token",
    "xoxp-": "a Slack token",
    "xapp-": "a Slack token",
    "AKIA": "an AWS access key",
    "ASIA": "an AWS access key",
    "AIza": "a Google API key",
    "ya29.": "a Google OAuth token",
    "npm_": "an npm token",
    "pypi-": "a PyPI token",
    "hf_": "a Hugging Face token",
    "ntn_": "a Notion token",
    "lin_api_": "a Linear API key",
    "dop_v1_": "a DigitalOcean token",
    "shpat_": "a Shopify token",
    "SG.": "a SendGrid key",
    "figd_": "a Figma token",
    "eyJ": "a JSON Web Token",
}
TOKEN: Final = re.compile(
    rf"(?<![A-Za-z0-9_-])(?P<prefix>{'|'.join(map(re.escape, sorted(_PREFIXES, key=len, reverse=True)))})"
    r"[A-Za-z0-9_./+=-]{12,}"
)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def known_token(text: str) -> str | None:
    """What well-known credential a text holds, like "a GitHub token"; None if it holds none."""
    if _PRIVATE_KEY.search(text):
        return "a private key"
    found = TOKEN.search(text)
    return _PREFIXES[found["prefix"]] if found else None


def literal_tokens(written: Json, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Where a manifest, as it was written, holds such credentials, and what each is."""
    if isinstance(written, dict):
        for key, item in written.items():
            yield from literal_tokens(item, (*path, key))
    elif isinstance(written, list):
        for index, item in enumerate(written):
            yield from literal_tokens(item, (*path, index))
    elif isinstance(written, str) and (kind := known_token(written)):
        yield path, kind
