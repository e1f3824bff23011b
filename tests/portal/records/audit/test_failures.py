"""A portal that is killed, or whose disk is full, leaves a log that is true: what was done is in it, and
what could not be written down and may change anything was not done.
"""

import os
import sys
from pathlib import Path

import pytest

from manifests.loader import load_manifest
from portal.__main__ import _stand_in_for_closed_streams
from portal.base.errors import AuditError
from portal.records.audit.audit import open_audit
from portal.records.audit.chain import StderrSink, linked, verify
from portal.records.logs import STDERR
from tests.portal.cli.test_endings import wait_for_writer
from tests.portal.commands import PortalCommand, started
from tests.portal.peers import raw, raw_tools, write_manifest
from tests.portal.records.audit.test_events import events
from tests.warm_commands import warm_command


def test_log_of_a_portal_that_was_killed_is_whole_and_goes_on(portal: PortalCommand, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo", "hang"))}, audit={"to": "audit.jsonl"})
    (tmp_path / "script.py").write_text(f"await up.echo()\nawait up.hang(acts_on={str(fifo)!r})")
    process = started("run", "script.py", cwd=tmp_path, command=warm_command())
    try:
        wait_for_writer(fifo)
    finally:
        process.kill()
        process.communicate()
    log = tmp_path / "audit.jsonl"
    report, named = verify([log]), ("call_decided", "call_ended", "run_ended")
    assert (report.problems, [len(events(tmp_path, each)) for each in named]) == ([], [2, 1, 0])
    with log.open("ab") as file:  # as if it was killed while it wrote
        file.write(linked(report.head, {"event": "e"})[0][:50])
    assert portal("audit", "verify", "audit.jsonl", cwd=tmp_path).returncode == 1
    (tmp_path / "script.py").write_text("await up.echo()")
    assert portal("run", "script.py", cwd=tmp_path).returncode == 0
    assert portal("audit", "verify", "audit.jsonl", cwd=tmp_path).returncode == 0
    after = verify([log], known=report.head)
    assert (after.head.seq, after.problems) == (report.head.seq + 6, [])


def test_stderr_that_nobody_reads_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, (reading, writing) = StderrSink(), os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        monkeypatch.setattr(sys, "stderr", writer)
        with pytest.raises(OSError):
            for _ in range(1_000):
                sink.append({"event": "x" * 5_000})
        for _ in range(12):  # the log drops what no one reads
            STDERR.msg("y" * 9_000)
        os.set_blocking(reading, False)
        assert len(reader.read()) > 5_000
        sink.append({"event": "read again"})
        assert b"read again" in reader.read()
        STDERR.msg("y" * 9_000)
        assert reader.read() == b"y" * 9_000 + b"\n"
        monkeypatch.undo()


async def test_log_that_would_go_nowhere_keeps_the_portal_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)  # a closed one
    _stand_in_for_closed_streams()
    with sys.stderr, pytest.raises(AuditError):
        await open_audit(load_manifest(write_manifest(tmp_path, {}, audit={"to": "stderr"}), {}))
