"""What somebody refused of a project's servers, in other files of the client than the one that names them."""

from portal.client_files.errors import ClientFileError
from portal.client_files.json_text import JsonTextError, Members, Node, read_json, texts
from portal.client_files.places import LOOKED_INTO, Place
from portal.client_files.raw_file import read_raw

_KEYS = ("disabledMcpjsonServers", "disabledMcpServers")


def refused_names(place: Place) -> frozenset[str]:
    """The names of servers that `place.refusals` turn off, for all projects or for this one.

    Raises:
        ClientFileError: One of these files cannot be read or understood, so that nobody knows.
    """
    found: set[str] = set()
    for path in place.refusals:
        file = read_raw(path)
        try:
            root = read_json(file.text(), LOOKED_INTO)
        except JsonTextError as error:
            raise ClientFileError(path, f"not JSON: {error}", error.line) from None
        for node in (root, _of_project(root, place)):
            if isinstance(node, Members):
                found.update(name for key in _KEYS for name in texts(node.find(key)))
    return frozenset(found)


def _of_project(root: Node | None, place: Place) -> Node | None:
    projects = root.find("projects") if isinstance(root, Members) else None
    return projects.find(str(place.project)) if isinstance(projects, Members) else None
