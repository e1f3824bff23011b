"""examples/replicas: the compose file's services, without Docker, and the Kubernetes manifests, without a cluster."""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import yaml
from mcp.shared.exceptions import MCPError

from portal.app.http_access import OPEN_PATHS
from tests.acceptance.portal_process import COMMAND, STOP_SECONDS, HttpPortal, http_model, listening_url
from tests.packaging.source_tree import ROOT
from tests.ports import closed_port
from tests.postgres import Postgres, postgres_server

pytestmark = pytest.mark.servers

EXAMPLE = ROOT / "examples/replicas"
COMPOSE = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
TOKEN = "a-token-of-the-tests"
KEY = "a-key-of-the-tests"
TAKE_OVER_SECONDS = 60


@contextmanager
def replica(service: dict[str, Any], store: str) -> Iterator[HttpPortal]:
    """A replica as its service in the compose file starts it, with the image's command."""
    given = {"MCP_CODE_PORTAL_TOKEN": TOKEN, "MCP_CODE_PORTAL_KEY": KEY}
    own = {name: given.get(name, store) for name in service["environment"]}
    process = subprocess.Popen(
        [COMMAND, "serve", "--http", "127.0.0.1:0", "--config", str(EXAMPLE / "portal.yaml")],
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield HttpPortal(listening_url(process), process)
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


@contextmanager
def load_balancer(folder: Path, replicas: dict[str, HttpPortal]) -> Iterator[str]:
    """nginx with the example's configuration; only names and ports are those of this machine. Yields its URL."""
    text, port = (EXAMPLE / "nginx.conf").read_text(), closed_port()
    for name, own in replicas.items():
        address = own.origin.removeprefix("http://")
        assert f"server {name}:8080 " in text
        text = text.replace(f"{name}:8080", address)
    text = text.replace("listen 8000", f"listen 127.0.0.1:{port}")
    text = text.replace(
        "http {",
        f"http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;",
    )
    (folder / "nginx.conf").write_text(text)
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert nginx is not None, "nginx is missing: run scripts/servers --all"
    given = (
        "-c",
        f"{folder}/nginx.conf",
        "-e",
        f"{folder}/error.log",
        "-g",
        f"pid {folder}/pid; daemon off;",
    )
    process = subprocess.Popen([nginx, *given], stdin=subprocess.DEVNULL)
    try:
        while not is_listening(port):
            assert process.poll() is None, (folder / "error.log").read_text()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def is_listening(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@dataclass
class Services:
    url: str
    replicas: dict[str, HttpPortal]


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def services(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The services that `docker compose up` starts. The last test that uses them kills a replica."""
    named = {name: each for name, each in COMPOSE["services"].items() if name.startswith("replica-")}
    user, _, _ = COMPOSE["services"]["replica-1"]["environment"]["MCP_CODE_PORTAL_STORE"].partition("@")
    store = f"{user}@{database.new_database().partition('@')[2]}"
    with ExitStack() as stack:
        replicas = {name: stack.enter_context(replica(each, store)) for name, each in named.items()}
        folder = tmp_path_factory.mktemp("nginx")
        yield Services(stack.enter_context(load_balancer(folder, replicas)), replicas)


async def test_browser_stays_at_the_replica_that_let_it_into_the_console(services: Services) -> None:
    url, same_origin = services.url.removesuffix("/mcp"), {"Sec-Fetch-Site": "same-origin"}
    async with httpx2.AsyncClient(base_url=url, headers=same_origin) as browser:
        assert (await browser.post("/ui/enter", data={"token": TOKEN})).status_code == 303
        assert [(await browser.get("/ui/runs")).status_code for _ in range(4)] == [200] * 4


async def test_a_run_goes_on_when_its_replica_is_killed_behind_the_load_balancer(services: Services) -> None:
    balancer = HttpPortal(services.url, next(iter(services.replicas.values())).process)
    async with http_model(balancer, token=TOKEN) as model:

        async def run(code: str, **arguments: Any) -> dict[str, Any]:
            result = await model.client.call_tool("execute_code", {"code": code, **arguments})
            answer: dict[str, Any] = json.loads(result.content[0].text)
            return answer

        begun = await run("x = 1", session="new")
        for expected in (2, 3, 4):
            assert (await run("x += 1\nx", session=begun["session"]))["result"] == expected
        code = "await portal.sleep(0.1)\nfor n in range(30):\n    await asyncio.sleep(0.2)\nsum(range(n + 1))"
        runs = [(await run(code, background=True))["run"] for _ in range(4)]
        services.replicas["replica-1"].process.kill()
        with anyio.fail_after(TAKE_OVER_SECONDS):
            for name in runs:
                answer = None
                while answer is None or answer.get("status") in ("running", "waiting"):
                    await anyio.sleep(0.2)
                    # A request may have been sent to the replica at the moment of its death.
                    with suppress(MCPError):
                        answer = await run("", run=name)
                assert answer["result"] == sum(range(30))
                # The password of the database is masked, so it must not be a word that answers have.
                assert answer["calls"] == "portal.sleep"


def test_the_database_is_healthy_if_the_network_reaches_it(database: Postgres) -> None:
    """While the image creates the database, its server has only a Unix socket. This one has none."""
    _, command = COMPOSE["services"]["postgres"]["healthcheck"]["test"]
    done = subprocess.run(command, shell=True, env={**os.environ, "PGPORT": str(database.port)})
    assert done.returncode == 0


def test_the_compose_file_names_what_there_is() -> None:
    services = COMPOSE["services"]
    mounts = itertools.chain.from_iterable(each.get("volumes", ()) for each in services.values())
    for mount in mounts:
        source = mount.split(":")[0]
        assert source in COMPOSE["volumes"] or (EXAMPLE / source).exists(), mount
    for each in services.values():
        assert {*each.get("depends_on", ())} <= services.keys()
    assert services["replica-2"]["pull_policy"] == "never"
    written = {*re.findall(r"\$\{(\w+)\}", (EXAMPLE / "portal.yaml").read_text())}
    assert written == services["replica-1"]["environment"].keys()


def test_the_kubernetes_manifests_are_valid() -> None:
    linter = ROOT / ".cache/servers/kubernetes/bin/kubernetes-validate"
    assert linter.exists(), "the linter is missing: run scripts/servers --all"
    done = subprocess.run(
        [linter, "--strict", str(EXAMPLE / "kubernetes.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_examples_have_the_same_settings() -> None:
    objects = [*yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text())]
    (manifest,) = (each["data"]["portal.yaml"] for each in objects if each["kind"] == "ConfigMap")
    theirs, ours = yaml.safe_load(manifest), yaml.safe_load((EXAMPLE / "portal.yaml").read_text())
    theirs["server"].pop("allowed_hosts")
    assert theirs["server"].pop("trusted_proxies") and ours["server"].pop("trusted_proxies")  # their networks
    assert theirs == ours
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for probe in ("readinessProbe", "livenessProbe"):  # without a Host, it asks by the address of the pod
        assert container[probe]["httpGet"] in [{"path": path, "port": "http"} for path in OPEN_PATHS]
    sleep_seconds = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > sleep_seconds + ours["server"]["drain_seconds"]
    assert {each["name"] for each in container["env"]} == {*re.findall(r"\$\{(\w+)\}", manifest)}
