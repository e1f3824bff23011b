"""The portal in a client's file in place of the servers that it stands in front of, and out of it again."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifests.json_value import Json
from portal.client_files.backups import Backups, Record, TakenOut, digest
from portal.client_files.contents import Contents, turned_off
from portal.client_files.entries import IS_PORTAL, is_portal
from portal.client_files.errors import ClientFileError
from portal.client_files.fields import Fields
from portal.client_files.json_edit import (
    CannotEditError,
    json_text,
    value_texts,
    with_members,
    without_members,
)
from portal.client_files.json_text import JsonTextError, plain, read_json
from portal.client_files.places import Place
from portal.client_files.raw_file import RawFile, read_raw
from portal.client_files.servers import Origin
from portal.client_files.toml_edit import table_text, table_texts, with_tables, without_tables
from portal.client_files.toml_text import TomlTextError, read_toml

PORTAL = "portal"


@dataclass(frozen=True)
class Installation:
    """What a client's file is to become: `taken_out` are the servers that go, `name` is the portal's, which starts with
    `manifest`.
    """

    place: Place
    file: RawFile
    content: bytes
    name: str
    taken_out: tuple[TakenOut, ...]
    manifest: Path

    def carry_out(self, backups: Backups) -> None:
        """
        Raises:
            ClientFileError: The file or its backup cannot be written, or somebody has written the file meanwhile; it is
                as it was.
        """
        file, is_there = self.file, self.file.content is not None
        record = Record(
            str(file.path),
            is_there,
            file.mode,
            digest(self.content),
            self.name,
            self.taken_out,
            str(self.manifest),
        )
        with backups.alone():
            # Before anything is kept: it would replace what somebody else who was quicker has kept of the file.
            file.require_unchanged()
            backups.keep(self.place, file, record)
            try:
                file.replace(self.content)
            except ClientFileError:
                backups.forget(self.place)
                raise


def planned(
    contents: Contents, origins: Iterable[Origin], entry: Mapping[str, Json], manifest: Path
) -> Installation:
    """`origins` are the servers to take out, `entry` is the portal's. Another entry of a portal's makes room for it.

    Raises:
        ClientFileError: The file cannot be edited, or the client would not start the portal; it says what to do.
    """
    place, file = contents.place, contents.file
    if file is None:
        raise contents.problem or ClientFileError(place.path, "cannot be read")
    own = [each.origin for each in contents.left_out if each.reason == IS_PORTAL]
    gone = [*origins, *own]
    container = (place.client.key,)
    by_container: dict[tuple[str, ...], list[str]] = {container: []}
    for origin in gone:
        by_container.setdefault(origin.container, []).append(origin.name)
    text = file.text()
    try:
        edit = _Editing(place, text)
        taken_out = [each for path, names in by_container.items() for each in edit.take_out(path, names)]
        name = edit.free_name(container, [origin.name for origin in own if origin.container == container])
        edit.put_in(container, {name: edit.entry_text(name, entry)})
    except (CannotEditError, JsonTextError, TomlTextError) as error:
        told = f"was left as it is, because {error}: put the portal in by hand, {json_text(entry)}"
        raise ClientFileError(place.path, told) from None
    if why := turned_off(place, edit.text, name):
        told = f"was left as it is, because {name!r} would not start: {why}; change that first"
        raise ClientFileError(place.path, told)
    return Installation(place, file, edit.text.encode(), name, tuple(taken_out), manifest)


def undo(place: Place, backups: Backups) -> str:
    """Take the portal out and put the servers back; says what was done.

    A file that is as the portal left it becomes what it was, byte for byte. In one that changed since, only the
    portal's entry goes, whatever it is called by now, and what is missing of the servers comes back.

    Raises:
        ClientFileError: There is nothing to undo, or it cannot be done; the message names the backup.
    """
    _recorded(place, backups)
    with backups.alone():
        return _undone(place, backups, _recorded(place, backups))


def _recorded(place: Place, backups: Backups) -> Record:
    record = backups.record(place)
    if record is None:
        raise ClientFileError(place.path, "the portal was not put in here, or was taken out already")
    return record


def _undone(place: Place, backups: Backups, record: Record) -> str:
    file, before = read_raw(place.path), backups.before(place) if record.was_there else None
    # Without the copy of a file that was there nobody knows its bytes, but the record has its servers.
    is_known = before is not None or not record.was_there
    if is_known and file.content is not None and digest(file.content) == record.after:
        file.replace(before, record.mode)
        backups.forget(place)
        return "is as it was before"
    if is_known and file.content == before:
        backups.forget(place)
        return "was as it was before already"
    told_before = _told_before(record, before, backups.copy_path(place))
    if file.content is None:
        raise ClientFileError(place.path, f"is gone; {told_before}")
    try:
        edit = _Editing(place, file.text())
        told = _reverted(edit, (place.client.key,), record)
    except CannotEditError as error:
        raise ClientFileError(place.path, f"was left as it is, because {error}; {told_before}") from None
    except (JsonTextError, TomlTextError) as error:
        told = f"was left as it is, because it cannot be understood any more: {error}; {told_before}"
        raise ClientFileError(place.path, told, error.line) from None
    file.replace(edit.text.encode())
    kept = backups.set_aside(place)
    return f"{told}; what else changed meanwhile stays, and {_told_before(record, before, kept)}"


def _reverted(edit: "_Editing", container: tuple[str, ...], record: Record) -> str:
    """Take the portal's entry out of a text that changed since, and put the servers back; says what was done."""
    portals = edit.portals(container)
    own = _own(portals, record)
    strangers = edit.present(container, [record.name]).keys() - portals.keys()
    edit.take_out(container, own)
    missed = [
        name
        for path in dict.fromkeys(each.container for each in record.taken_out)
        for name in edit.put_back(
            path, {each.name: each.text for each in record.taken_out if each.container == path}
        )
    ]
    told = [f"{name!r} is not back: another server is called so by now" for name in missed]
    told += [f"{name!r}, which the portal is called by now, is out" for name in own if name != record.name]
    told += [f"{name!r} is no portal any more and stays" for name in strangers]
    told += [f"{name!r} starts a portal and stays" for name in portals if name not in own]
    return "; ".join([f"has {'the others of ' if missed else ''}its servers back", *told])


def _own(portals: Mapping[str, Sequence[str]], record: Record) -> Collection[str]:
    """The name of the entry that was put in, by now; none if that is not certain."""
    if record.name in portals:
        return [record.name]
    # Whoever gave the entry another name would have the portal and its servers side by side.
    alike = [name for name, words in portals.items() if record.manifest in filter(None, words)]
    return alike if len(alike) == 1 else []


def _told_before(record: Record, before: bytes | None, copy: Path | None) -> str:
    if not record.was_there:
        return "there was no such file before"
    if before is None:
        return "what it was before is not known any more: its backup is gone"
    return f"what it was before is in {copy}"


class _Editing:
    """Edits of one text, in the format that the client keeps it in."""

    def __init__(self, place: Place, text: str) -> None:
        self.text = text
        self._is_toml = place.client.is_toml

    def take_out(self, container: Sequence[str], names: Collection[str]) -> list[TakenOut]:
        present = self.present(container, names)
        if self._is_toml and len(present) < len(set(names)):
            raise CannotEditError("its servers are not written as tables of their own ([mcp_servers.NAME])")
        if self._is_toml:
            self.text = without_tables(self.text, container[0], present.keys())
        else:
            self.text = without_members(self.text, container, present.keys())
        return [TakenOut(tuple(container), name, text) for name, text in present.items()]

    def put_in(self, container: Sequence[str], texts: Mapping[str, str]) -> None:
        if self._is_toml:
            self.text = with_tables(self.text, container[0], texts)
        else:
            self.text = with_members(self.text, container, texts, is_laid_out=True)

    def put_back(self, container: Sequence[str], texts: Mapping[str, str]) -> list[str]:
        """Those whose names are free. Returns the names under which something else is there meanwhile."""
        there = self.present(container, texts.keys())
        missing = {name: text for name, text in texts.items() if name not in there}
        if self._is_toml:
            self.put_in(container, missing)
        else:
            self.text = with_members(self.text, container, missing)
        return [name for name, text in there.items() if self._said(text) != self._said(texts[name])]

    def free_name(self, container: Sequence[str], own: Sequence[str]) -> str:
        """What the portal's entry had for a name, or one that no server has."""
        candidates = [*own, PORTAL, "mcp-code-portal", *(f"{PORTAL}-{n}" for n in range(2, 1000))]
        taken = self.present(container, candidates)
        return next(name for name in candidates if name not in taken)

    def entry_text(self, name: str, entry: Mapping[str, Json]) -> str:
        if not self._is_toml:
            return json_text(dict(entry))
        return table_text("mcp_servers", name, entry)

    def portals(self, container: Sequence[str]) -> dict[str, Sequence[str]]:
        """The arguments of those that start a portal: under its name there may be somebody else's server by now."""
        found: dict[str, Sequence[str]] = {}
        for name, said in self._entries(container):
            try:
                fields = Fields.of(said)
                command, arguments = fields.text("command") or "", fields.texts("args")
            except ValueError:
                continue
            if is_portal(command, arguments):
                found[name] = arguments
        return found

    def _entries(self, container: Sequence[str]) -> Iterator[tuple[str, Json]]:
        if not self._is_toml:
            yield from ((name, self._said(text)) for name, text in value_texts(self.text, container).items())
        elif isinstance(servers := read_toml(self.text).get(container[0]), dict):
            yield from servers.items()

    def _said(self, text: str) -> Json:
        """What a server's text says; the text itself if that is nothing certain."""
        try:
            return read_toml(text) if self._is_toml else _value(text)
        except ValueError:
            return text

    def present(self, container: Sequence[str], names: Collection[str]) -> dict[str, str]:
        if self._is_toml:
            found = table_texts(self.text, container[0], names)
            return {name: text for name, text in found.items() if text}
        return {name: text for name, text in value_texts(self.text, container).items() if name in names}


def _value(text: str) -> Json:
    node = read_json(text)
    return None if node is None else plain(node)
