"""What `mcp-code-portal import --json` says of what it found. No secret is in it."""

from collections.abc import Collection, Sequence

from manifests.json_value import Json
from portal.client_files.contents import Contents
from portal.client_files.merging import Merged, Taken, Variable
from portal.client_files.servers import LeftOut, Origin


def facts_of(contents: Sequence[Contents], merging: Merged, known: Collection[str]) -> dict[str, Json]:
    """`known` are the variables that have a value."""
    return {
        "files": [_file(each) for each in contents if each.is_there],
        "servers": [_server(each) for each in merging.taken],
        "left_out": [_left_out(each) for each in merging.left_out],
        "variables": [_variable(each, known) for each in merging.variables],
    }


def _file(each: Contents) -> Json:
    problem = each.problem
    return {
        "client": each.place.name,
        "path": str(each.place.path),
        "servers": len(each.servers),
        "left_out": len(each.left_out),
        "problem": None if problem is None else problem.message,
        "line": None if problem is None else problem.line,
    }


def _server(each: Taken) -> Json:
    return {
        "name": each.name,
        "is_new": each.is_new,
        "spec": each.server.spec() if each.is_new else None,
        "from": [_origin(origin) for origin in each.origins],
        "notes": list(each.notes),
    }


def _variable(each: Variable, known: Collection[str]) -> Json:
    kind = "input" if each.input_id is not None else "environment" if each.value is None else "secret"
    return {"name": each.name, "used_by": list(each.used_by), "kind": kind, "is_set": each.name in known}


def _origin(origin: Origin) -> dict[str, Json]:
    return {
        "client": origin.place.name,
        "path": str(origin.place.path),
        "line": origin.line,
        "name": origin.name,
    }


def _left_out(each: LeftOut) -> Json:
    return {**_origin(each.origin), "reason": each.reason}
