"""What a lazy upstream listed is known as long as it is configured as it was then; its file holds no secret."""

import sys
from pathlib import Path

import pytest
import yaml

from manifests.json_value import Json
from manifests.loader import load_manifest
from tests.upstreams.peers import DEADLINE_SECONDS, RAW_SERVER, open_fleet
from upstreams.fleet import UpstreamSettings
from upstreams.tools import ListingStore

pytestmark = pytest.mark.anyio

TOOLS_OF_SETTING = """
import json, os, runpy, sys
names = os.environ["TOOLSET"].split(",")
sys.argv[1:] = [json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})]
runpy.run_path(%r)
"""


async def listed(folder: Path, entry: Json, **environ: str) -> list[str]:
    """The names of the tools that a portal knows that has the entry in its manifest."""
    path = folder / "portal.yaml"
    path.write_text(yaml.safe_dump({"upstreams": {"one": entry}}))
    manifest = load_manifest(path, environ)
    async with open_fleet({}, folder, lambda upstream: None, folder / "listings") as fleet:
        (spec,) = manifest.portal.upstreams.values()
        fleet.replace({"one": UpstreamSettings(spec, written=manifest.written["one"])}, ())
        assert not await fleet.settled(DEADLINE_SECONDS)
        return [tool.name for tool in fleet["one"].tools]


async def test_a_server_whose_environment_is_configured_otherwise_is_listed_anew(tmp_path: Path) -> None:
    entry: dict[str, Json] = {
        "command": sys.executable,
        "args": ["-c", TOOLS_OF_SETTING % str(RAW_SERVER)],
        "start": "lazy",
    }
    assert await listed(tmp_path, {**entry, "env": {"TOOLSET": "alpha"}}) == ["alpha"]
    assert await listed(tmp_path, {**entry, "env": {"TOOLSET": "alpha,beta"}}) == ["alpha", "beta"]


async def test_what_a_reference_fills_in_is_in_no_hash(tmp_path: Path) -> None:
    entry: dict[str, Json] = {"env": {"DOOR": "${DOOR}"}}
    assert kept_in(tmp_path, entry, DOOR="1234") == kept_in(tmp_path, entry, DOOR="4321")


def kept_in(folder: Path, entry: dict[str, Json], **environ: str) -> Path:
    """The file of the listing of a server with this in its section."""
    path = folder / "portal.yaml"
    path.write_text(yaml.safe_dump({"upstreams": {"one": {"command": "server", **entry}}}))
    manifest = load_manifest(path, {"A": "a", "B": "b", **environ})
    spec, written = manifest.portal.upstreams["one"], manifest.written["one"]
    return ListingStore(folder / "listings", "one", spec, folder, written).file
