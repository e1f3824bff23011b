"""A portal over stdio whose upstreams write down their calls, and `mcp-code-portal ui`, which shows it to browsers."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urljoin

import anyio
import httpx2
from mcp import Client
from mcp_types import Implementation

from tests.acceptance.browser import Chromium, Tab
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import STOP_SECONDS, stdio_parameters, write_manifest
from tests.ports import closed_port
from tests.warm_commands import warm_command

SERVER = Path(__file__).parent / "peers/company_server.py"
CLIENT = Implementation(name="Desk", version="4.2")
SECONDS = 30
READ = "len(await tickets.list_tickets(queue='billing', state='open'))"
REFUND = "await billing.refund(charge='ch_81f9', amount=1290.0, reason='twice')"
REFUNDS = (
    "import asyncio\n"
    "await asyncio.gather(*[billing.refund(charge=f'ch_{n}', amount=5.0, reason='late') for n in range(3)])"
)


@dataclass(frozen=True)
class Console:
    """A process of `mcp-code-portal ui`. `entrance` is the address with the ticket that it printed."""

    entrance: str
    process: subprocess.Popen[str]
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return self.entrance.partition("/ui")[0]

    def enter(self) -> str:
        """Use the ticket. Returns the path of the page that it leads to."""
        with self.http() as http:
            answer = http.get(self.entrance)
            assert answer.status_code == 303, answer.text
            self.cookies.update(http.cookies)
        return str(answer.headers["location"])

    def http(self) -> httpx2.Client:
        """What sends requests as a page of the console does."""
        headers = {"Sec-Fetch-Site": "same-origin"}
        return httpx2.Client(base_url=self.origin, cookies=self.cookies, headers=headers, timeout=SECONDS)

    def links(self, path: str) -> list[str]:
        """The links on a page, in their order."""
        with self.http() as http:
            parts = http.get(path).text.split('href="')[1:]
        found = (urljoin(path, part.partition('"')[0]).partition("#")[0] for part in parts)
        return [*dict.fromkeys(each.replace("&amp;", "&") for each in found)]


@dataclass(frozen=True)
class Desk:
    """A company's portal that works, and a console of it. `base` is the path of its pages."""

    company: "Company"
    model: Model
    console: Console
    base: str

    async def tab(self, chromium: Chromium, path: str = "/", **options: Json) -> Tab:
        """A tab with a page of the portal. `options` are those of Playwright's `new_context`."""
        tab = await chromium.tab(self.console.origin, self.console.cookies, **options)
        await tab.open(self.base + path)
        return tab

    async def begin(self, code: str, until: str = "") -> str:
        """The id of a run in the background, which has come to the status `until`."""
        answer = await self.model.call("execute_code", {"code": code, "background": True})
        assert answer.structured_content is not None
        run = str(answer.structured_content["run_id"])
        if until:
            await self.until(run, until)
        return run

    async def answer(self, run: str) -> dict[str, Json]:
        """What a client is told of a run."""
        answer = await self.model.call("execute_code", {"run": run})
        assert answer.structured_content is not None
        return answer.structured_content

    async def until(self, run: str, status: str) -> None:
        with anyio.fail_after(SECONDS):
            while (await self.answer(run))["status"] != status:  # noqa: ASYNC110  # asking makes runs slower
                await anyio.sleep(0.05)


class Company:
    """A folder with the manifest of a company, its state, and what its upstreams were sent."""

    def __init__(
        self, folder: Path, *upstreams: str, delay: float = 0.0, state: Path | None = None, **sections: Json
    ) -> None:
        """`sections` are those of the manifest. `state` is the folder of a user who has several such companies."""
        folder.mkdir(exist_ok=True)
        self.folder, self.log = folder, folder / "calls.log"
        self.environ = {"XDG_STATE_HOME": str(state or folder / "state")}
        ends = [str(self.log), str(delay)]
        servers = {
            name: {"command": sys.executable, "args": [str(SERVER), name, *ends]} for name in upstreams
        }
        self.manifest = write_manifest(folder, servers, runs={"park_after_seconds": 0.1}, **sections)

    @property
    def stores(self) -> Path:
        """The folder with a folder for each store of runs."""
        return Path(self.environ["XDG_STATE_HOME"]) / "mcp-code-portal/runs"

    @property
    def sent(self) -> list[tuple[str, Json]]:
        """The calls that upstreams got: function and arguments."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(function, arguments) for function, arguments in map(json.loads, lines)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Upstreams do not answer calls that may not be repeated."""
        hold = self.log.with_suffix(".hold")
        hold.touch()
        yield
        hold.unlink()

    @asynccontextmanager
    async def portal(self) -> AsyncIterator[Model]:
        """A model whose client has started the portal."""
        parameters = stdio_parameters(self.manifest, self.environ)
        async with Client(parameters, client_info=CLIENT) as client:
            yield Model(client)

    @asynccontextmanager
    async def desk(self) -> AsyncIterator[Desk]:
        async with self.portal() as model:
            with self.console("--decide") as console:
                yield Desk(self, model, console, console.enter().removesuffix("/"))

    @contextmanager
    def console(self, *options: str) -> Iterator[Console]:
        """`mcp-code-portal ui` without a terminal."""
        command = [*warm_command(), "ui", "--no-browser", "--port", str(closed_port()), *options]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env={**os.environ, **self.environ},
        )
        try:
            yield Console(_address(process), process)
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)

    async def portals(self) -> list[Mapping[str, Json]]:
        """What `mcp-code-portal status` tells, which exits with 1 if anything needs a person."""
        command = [*warm_command(), "status", "--json"]
        done = await anyio.run_process(command, check=False, env={**os.environ, **self.environ})
        told: list[Mapping[str, Json]] = json.loads(done.stdout)
        return told

    async def kill(self) -> None:
        """`kill -9` of the only portal."""
        (portal,) = await self.portals()
        os.kill(portal["pid"], signal.SIGKILL)

    async def until_sent(self, function: str, calls: int = 1) -> None:
        with anyio.fail_after(SECONDS):
            while [each for each, _ in self.sent].count(function) < calls:  # noqa: ASYNC110  # others write it
                await anyio.sleep(0.02)


def _address(process: subprocess.Popen[str]) -> str:
    """The address that the command prints. The rest of its output is short, and is left unread."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://\S+/ui/enter\?ticket=\S+", line):
            return re.sub(r"ui-\w+\.localhost", "127.0.0.1", found[0])  # only browsers know such names
    raise AssertionError("".join(said))
