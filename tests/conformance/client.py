"""The portal as the suite's client: for each scenario a portal with the suite's server as upstream, and a script."""

import asyncio
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.server.server import build_server
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import write_manifest
from tests.upstreams.oauth_peer import browse
from upstreams.fleet import login_store
from upstreams.oauth.authorization_server import OAuthError
from upstreams.oauth.login import log_in

METADATA_URL = "https://conformance-test.local/client-metadata.json"
MAX_LOGINS = 2
ARGUMENTS: dict[str, dict[str, Json]] = {
    "add_numbers": {"a": 5, "b": 3},
    "valid_tool": {"region": "eu"},
    "lookup_user": {"id": "1"},
    "json_schema_2020_12_tool": {"phone": "1"},
}
SCRIPTS = {
    "http-standard-headers": """
import portal
for resource in (await portal.resources("suite"))["resources"]:
    await portal.read_resource(resource)
for prompt in (await portal.prompts("suite"))["prompts"]:
    await portal.get_prompt(prompt["name"], {}, upstream="suite")
"""
}
SCENARIO_SECONDS = 60
AT_ONCE = 4


@dataclass
class Scenario:
    name: str
    url: str
    context: dict[str, Json]

    async def oauth(self) -> dict[str, Json] | None:
        """What an operator writes who knows what the scenario's context says."""
        if not self.name.startswith("auth/"):
            return None
        if self.name == "auth/basic-cimd":
            return {"client_metadata_url": METADATA_URL}
        if "client_secret" not in self.context:
            return {}
        given = {key: self.context[key] for key in ("client_id", "client_secret")}
        grant = "client_credentials" if "client-credentials" in self.name else "authorization_code"
        return {"grant": grant, "issuer": await self._issuer(), **given}

    async def _issuer(self) -> str:
        origin, _, path = self.url.rpartition("/")
        async with httpx2.AsyncClient() as http:
            metadata = await http.get(f"{origin}/.well-known/oauth-protected-resource/{path}")
        return str(metadata.json()["authorization_servers"][0])


@dataclass
class Driver:
    """Takes scenarios from `stub.py`, a few at once; `outcomes` is how each ended: "ok", or what went wrong."""

    folder: Path
    outcomes: dict[str, str] = field(default_factory=dict)
    _turns: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scenario = Scenario(**json.loads(await reader.readline()))
        try:
            async with self._turns:
                with anyio.fail_after(SCENARIO_SECONDS):
                    self.outcomes[scenario.name] = await self.drive(scenario)
        except Exception as error:  # noqa: BLE001  # the test shows it
            self.outcomes[scenario.name] = repr(error)
        finally:
            writer.close()

    async def drive(self, scenario: Scenario) -> str:
        oauth = await scenario.oauth()
        outcome = ""
        for attempt in range(MAX_LOGINS):
            manifest = self._manifest(scenario, oauth, attempt)
            if oauth is not None and oauth.get("grant") != "client_credentials":
                try:
                    scope = await _sign_in(manifest)
                except OAuthError as error:
                    return f"login refused: {error}"
            outcome = await _call_all(manifest, scenario)
            lacking = re.search(r"requires the scope '(.*?)'", outcome)
            if lacking and oauth is not None:  # what the message and docs/secrets.md say to do
                oauth = {**oauth, "scope": f"{scope} {lacking[1]}"}
            elif "run: mcp-code-portal login" not in outcome:
                break
        return outcome

    def _manifest(self, scenario: Scenario, oauth: dict[str, Json] | None, attempt: int) -> Path:
        folder = self.folder / scenario.name.replace("/", "-") / str(attempt)
        folder.mkdir(parents=True)
        upstream = {"url": scenario.url} | ({} if oauth is None else {"oauth": oauth})
        return write_manifest(folder, {"suite": upstream}, server={"check": "off", "workers": 1})


async def _call_all(manifest: Path, scenario: Scenario) -> str:
    """Call what the scenario names, or else each function, and say how that ended."""
    loaded = load_manifest(manifest, os.environ)
    async with (
        open_portal(loaded, lambda text: None) as portal,
        Client(build_server(portal), elicitation_callback=_accept_defaults) as client,
    ):
        model = Model(client)
        found = await model.search(upstream="suite", limit=50)
        if portal.fleet["suite"].state.status != "ready":
            return f"not ready: {' '.join(found['notices'])}"
        schemas = {tool.name: tool.input_schema for tool in portal.fleet["suite"].tools}
        arguments = {**ARGUMENTS, "json_schema_echo": {"schema": schemas.get("json_schema_2020_12_tool")}}
        calls = scenario.context.get("toolCalls") or [
            {"name": each["tool"], "arguments": arguments.get(each["tool"], {})}
            for each in found["functions"]
        ]
        lines = [f"await suite.{each['name'].replace('-', '_')}(**{each['arguments']!r})" for each in calls]
        answer = await model.run("\n".join([*lines, SCRIPTS.get(scenario.name, "")]))
        return (
            "ok" if answer["status"] == "ok" else f"{answer['error']['code']}: {answer['error']['message']}"
        )


async def _accept_defaults(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    properties = params.requested_schema.get("properties", {})
    given = {name: each["default"] for name, each in properties.items() if "default" in each}
    return ElicitResult(action="accept", content=given)


async def _sign_in(manifest: Path) -> str:
    """`mcp-code-portal login suite`, by a person who agrees to everything. Returns the scope."""
    spec = load_manifest(manifest, os.environ).portal.upstreams["suite"]
    async with anyio.create_task_group() as tasks:
        try:
            login = await log_in(spec, lambda issuer, url: tasks.start_soon(browse, url))
        except OAuthError as error:  # as a value: the task group would wrap it
            login = error
        tasks.cancel_scope.cancel()
    if isinstance(login, OAuthError):
        raise login
    await login_store("suite", spec).save(login)
    return login.scope or ""
