"""The commands of the Dockerfile, run in a scratch folder instead of an image."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from sandbox_runtime.kernels import KERNELS
from tests.acceptance.portal_process import HttpPortal, listening_url
from tests.packaging.source_tree import COMMAND_SECONDS, ROOT, bring_components, copy_source, run
from tests.ports import closed_port

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

TOKEN = "a-token-of-the-tests"


class Image:
    """The Dockerfile's instructions, with the image's folders moved below a scratch folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = closed_port()
        text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
        self._lines = [line for line in text.splitlines() if line and not line.startswith("#")]

    def build(self) -> None:
        """Run the build stage in a copy of the source."""
        source = copy_source(self.folder / "source")
        bring_components(source)
        for command in self._instructions("RUN"):
            if not command.startswith("useradd"):
                run(["sh", "-ec", self._moved(command)], source, self._build_environment())

    def healthcheck(self) -> list[str]:
        (line,) = self._instructions("HEALTHCHECK")
        return self._words(line[line.index("CMD ") + 4 :])

    def start_command(self) -> list[str]:
        """ENTRYPOINT and CMD, as a container starts them."""
        (entry,), (arguments,) = self._instructions("ENTRYPOINT"), self._instructions("CMD")
        return [*self._words(entry), *self._words(arguments)]

    def environment(self) -> dict[str, str]:
        """The variables of the tests, with those that ENV sets in the last stage."""
        build = self._build_environment()
        return {**build, "PATH": f"{self.folder}/opt/mcp-code-portal/bin{os.pathsep}{build['PATH']}"}

    def _build_environment(self) -> dict[str, str]:
        """The variables that ENV sets in the build stage; its `python` is the one of the tests."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "MCP_CODE_PORTAL_CACHE": f"{self.folder}/opt/mcp-code-portal/cache",
        }

    def _instructions(self, name: str) -> list[str]:
        return [line.partition(" ")[2].strip() for line in self._lines if line.startswith(f"{name} ")]

    def _words(self, text: str) -> list[str]:
        return [self._moved(word) for word in json.loads(text)]

    def _moved(self, text: str) -> str:
        text = re.sub(r"(?<![\w./])/(opt|wheel|etc)\b", f"{shlex.quote(str(self.folder))}/\\1", text)
        return text.replace("0.0.0.0:8080", f"0.0.0.0:{self.port}").replace(
            "127.0.0.1:8080", f"127.0.0.1:{self.port}"
        )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    image = Image(tmp_path_factory.mktemp("image"))
    image.build()
    target = image.folder / "etc/mcp-code-portal/portal.yaml"
    target.parent.mkdir(parents=True)
    target.write_bytes((ROOT / "examples/container.yaml").read_bytes())
    return image


@pytest.fixture(scope="module")
def container(image: Image) -> Iterator[HttpPortal]:
    process = subprocess.Popen(
        image.start_command(),
        cwd=image.folder,
        env={**image.environment(), "MCP_CODE_PORTAL_TOKEN": TOKEN},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield HttpPortal(listening_url(process).replace("0.0.0.0", "127.0.0.1"), process)
    finally:
        process.terminate()
        process.wait(COMMAND_SECONDS)


@pytest.mark.release
def test_image_compiles_the_components_ahead_of_time_for_any_user(image: Image) -> None:
    cache = image.folder / "opt/mcp-code-portal/cache"
    compiled = [*cache.glob("*.cwasm")]
    assert len(compiled) == len(KERNELS)
    assert cache.stat().st_mode & 0o777 == 0o755
    assert all(each.stat().st_mode & 0o044 == 0o044 for each in compiled)


@pytest.mark.release
def test_image_holds_no_build_tools(image: Image) -> None:
    names = {path.name for path in (image.folder / "opt/mcp-code-portal/bin").iterdir()}
    assert "mcp-code-portal" in names
    assert not {"pip", "componentize-py", "hatchling", "pyproject-build"} & names


@pytest.mark.release
def test_container_without_a_token_says_what_to_set(image: Image) -> None:
    environment = image.environment()
    environment.pop("MCP_CODE_PORTAL_TOKEN", None)
    done = subprocess.run(
        image.start_command(),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert done.returncode != 0
    assert "MCP_CODE_PORTAL_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.release
def test_container_with_a_token_is_healthy(image: Image, container: HttpPortal) -> None:
    done = subprocess.run(image.healthcheck(), env=image.environment(), timeout=COMMAND_SECONDS)
    assert done.returncode == 0
    assert httpx2.post(container.url, json={}).status_code == 401


def test_files_of_the_build_are_let_through_by_dockerignore() -> None:
    """Everything is kept out but what is named, so each name must be there."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    named = [rule[1:] for rule in rules if rule.startswith("!")]
    assert "*" in rules
    assert all((ROOT / name).exists() for name in named), named
