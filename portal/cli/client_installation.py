"""`mcp-code-portal import --install` and `--undo`: the portal in a client's file, and out of it again."""

import os
from collections.abc import Mapping, Sequence

from manifests.json_value import Json
from portal.cli.terminal import Terminal
from portal.client_files.backups import Backups
from portal.client_files.contents import Contents
from portal.client_files.errors import ClientFileError
from portal.client_files.existing import Existing
from portal.client_files.installation import planned, undo
from portal.client_files.merging import Merged, Variable
from portal.client_files.places import Place
from portal.client_files.portal_entry import INHERITED, portal_entry, supplied, with_default
from portal.client_files.target import Target

FAILED = 1


def installed(
    contents: Sequence[Contents], merging: Merged, target: Target, terminal: Terminal, *, is_dry: bool
) -> tuple[int, list[Json]]:
    """Put the portal into each of the files in place of the servers that the manifest has; the exit status, and facts.

    `target` is the manifest as it is, or as it would be if nothing but `is_dry` were against it.
    """
    status, facts = 0, []
    for each in contents:
        try:
            facts.append(_installed(each, merging, target, terminal, is_dry=is_dry))
        except ClientFileError as error:
            terminal.error(str(error))
            status = FAILED
    return status, facts


def undone(places: Sequence[Place], terminal: Terminal) -> tuple[int, list[Json]]:
    """Take the portal out of each of the files; the exit status, and facts."""
    backups = Backups(os.environ)
    status: int = 0
    facts: list[Json] = []
    for place in places:
        try:
            told = undo(place, backups)
        except ClientFileError as error:
            terminal.error(str(error))
            status = FAILED
            continue
        terminal.note(f"{place.path} {told}")
        facts.append({"client": place.name, "path": str(place.path), "told": told})
    return status, facts


def _installed(
    contents: Contents, merging: Merged, target: Target, terminal: Terminal, *, is_dry: bool
) -> Json:
    place, backups = contents.place, Backups(os.environ)
    record, content = backups.record(place), contents.file and contents.file.content
    if record is not None and (content != backups.before(place) or record.was_there != (content is not None)):
        raise ClientFileError(
            place.path, f"has the portal already: take it out with --undo {place.name} first"
        )
    by_file, lacking = supplied(place, _needed(contents, merging, target, os.environ))
    if lacking:
        names = ", ".join(each.name for each in lacking)
        raise ClientFileError(
            place.path,
            f"was left as it is: a portal that {place.client.title} starts would lack {names}. --save-secrets keeps "
            f"what files hold in {target.env.path.name}; write the others there yourself",
        )
    defaulted, left = with_default(
        place, target.existing.defaulted - target.kept.keys() - INHERITED, os.environ
    )
    if left:
        told = f"a portal that {place.client.title} starts has the defaults of {', '.join(left)}, which are set here"
        terminal.note(f"{told}: write them into {target.env.path.name} if it is to have these")
    origins = [origin for taken in merging.taken for origin in taken.origins if origin.place == place]
    manifest = target.manifest.path
    plan = planned(contents, origins, portal_entry(place, manifest, by_file, defaulted), manifest)
    gone = [each.name for each in plan.taken_out]
    told = f"{plan.name!r} in place of {', '.join(gone) or 'nothing'}"
    if is_dry:
        terminal.note(f"{place.path} would get {told}")
    else:
        plan.carry_out(backups)
        terminal.note(f"{place.path} has {told}; back again: mcp-code-portal import --undo {place.name}")
    return {
        "client": place.name,
        "path": str(place.path),
        "name": plan.name,
        "taken_out": gone,
        "is_written": not is_dry,
        "backup": None if is_dry or plan.file.content is None else str(backups.copy_path(place)),
    }


def _needed(
    contents: Contents, merging: Merged, target: Target, environ: Mapping[str, str]
) -> list[Variable]:
    """What the manifest refers to and portal.env does not have, without what every client hands on by itself."""
    known = {each.name: each for each in merging.variables}
    place = contents.place.name
    found = []
    for name in sorted(target.existing.needed - target.kept.keys()):
        variable = known.get(name, Variable(name, ()))
        is_of_environment = name in environ and place not in variable.input_places
        if not (is_of_environment and name in INHERITED):
            found.append(Variable(name, ()) if is_of_environment else variable)
    return found


def as_written(target: Target, text: str, saved: Mapping[str, str]) -> Target:
    """The manifest as it is once this text is written, and these secrets are kept."""
    return Target(target.manifest, Existing.of(text), target.env, {**target.kept, **saved})
