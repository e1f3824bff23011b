"""A portal that is started where few files may be open."""

import os
import subprocess
from pathlib import Path

from manifests.json_value import Json
from tests.portal.commands import COMMAND, COMMAND_SECONDS
from tests.portal.peers import raw, raw_tools, write_manifest

FEW = 64
MANY = 4096
UPSTREAMS = 25


def telling(entry: dict[str, Json], place: Path) -> dict[str, Json]:
    """The same server, which says first how many files it may have open."""
    return {
        "command": "sh",
        "args": [
            "-c",
            f'ulimit -Sn > {place}; ulimit -Hn >> {place}; exec "$@"',
            "sh",
            entry["command"],
            *entry["args"],
        ],
    }


def test_portal_has_room_for_many_servers_where_a_process_begins_with_few(tmp_path: Path) -> None:
    entry = raw(tools=raw_tools("echo"))
    upstreams: dict[str, Json] = {f"up{number}": entry for number in range(UPSTREAMS)}
    write_manifest(tmp_path, {**upstreams, "tells": telling(entry, tmp_path / "told")})
    limited = f'ulimit -Sn {FEW} && ulimit -Hn {MANY} && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", limited, "sh", *COMMAND, "check"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "told").read_text().split() == [str(FEW), str(MANY)]
