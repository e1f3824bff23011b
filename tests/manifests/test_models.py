"""Models used by themselves, as other folders and their tests do."""

from manifests.grants import Limits
from manifests.portal_manifest import HttpUpstream, PortalManifest, ServerSettings, StdioUpstream


def test_defaults_are_those_of_the_design() -> None:
    assert Limits().model_dump() == {
        "wall_seconds": 60,
        "background_seconds": 3600,
        "cpu_seconds": 10,
        "memory_mib": 256,
        "tool_calls": 200,
        "parallel_calls": 64,
        "argument_bytes": 1048576,
        "outcome_bytes": 10485760,
        "result_bytes": 10485760,
        "stdout_bytes": 262144,
    }
    server = ServerSettings()
    assert (server.output_tokens, server.start_seconds, server.check, server.token) == (
        6000,
        10,
        "strict",
        None,
    )


def test_what_may_hold_a_secret_is_not_in_the_repr() -> None:
    http = HttpUpstream(url="https://user:hunter2@host/?key=hunter2", headers={"A": "hunter2"})
    stdio = StdioUpstream(command="x", args=("--token=hunter2",), env={"A": "hunter2"})
    manifest = PortalManifest.model_validate(
        {"upstreams": {"a": http, "b": stdio}, "server": {"token": "hunter2"}}
    )
    assert "hunter2" not in repr(manifest)
    assert "hunter2" not in str(manifest)
