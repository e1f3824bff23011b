"""What is said where no more files may be open."""

import os
import resource
from itertools import count, islice
from pathlib import Path

import pytest

from manifests.upstream_sections import StdioUpstream
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamUnavailableError
from upstreams.masking import CredentialMask
from upstreams.room import Held, Room
from upstreams.scrubber import Scrubber
from upstreams.stdio_child import StdioChild
from upstreams.stdio_wire import open_stdio_wire

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("free", [2, 200])
async def test_server_for_which_no_files_are_left_says_what_to_do(tmp_path: Path, free: int) -> None:
    spec = StdioUpstream(command="cat")
    scrub = Scrubber.for_upstream(spec)
    child = StdioChild.of(spec, tmp_path, os.environ)
    wire = open_stdio_wire(child, scrub, Diagnostics(scrub), CredentialMask(()), Held(Room(0)))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir("/proc/self/fd")}
    unused = (number for number in count() if number not in taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(islice(unused, free, None)), limits[1]))
    try:
        if free > 2:
            async with wire:
                return
        with pytest.raises(UpstreamUnavailableError, match="ulimit -Hn"):
            async with wire:
                """Not reached."""
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
