"""The portal's own files that an import writes: portal.yaml, and portal.env with the values of secrets."""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifests.env_file import env_path, env_text, read_env
from manifests.errors import ManifestError
from manifests.loader import load_manifest
from manifests.references import SecretReference
from portal.client_files.errors import ClientFileError
from portal.client_files.existing import Existing
from portal.client_files.json_text import BOM
from portal.client_files.manifest_text import HEADING, upstream_lines
from portal.client_files.merging import Taken, Variable
from portal.client_files.raw_file import RawFile, read_raw
from portal.client_files.servers import UNKNOWN, UNKNOWN_URL


@dataclass(frozen=True)
class Target:
    """A manifest, there or not yet, and what is beside it."""

    manifest: RawFile
    existing: Existing
    env: RawFile
    kept: Mapping[str, str]

    @classmethod
    def at(cls, path: Path) -> "Target":
        """
        Raises:
            ClientFileError: One of the files cannot be read.
            ManifestError: One of them cannot be understood.
        """
        manifest = read_raw(path)
        env = read_raw(env_path(path))
        try:
            existing = Existing.of(manifest.text().removeprefix(BOM))
        except ManifestError as error:
            raise ManifestError(error.problems, path.name) from None
        return cls(manifest, existing, env, read_env(env.path))

    @property
    def is_there(self) -> bool:
        return self.manifest.content is not None

    def text(self, taken: Sequence[Taken], home: Path) -> str:
        """The manifest with those of the servers that it does not have yet.

        Raises:
            CannotAddError: It is written in a way that cannot be added to.
        """
        new = [each for each in taken if each.is_new]
        lines = upstream_lines(new, home)
        if not self.is_there:
            return HEADING + "".join(f"{line}\n" for line in lines)
        return self.existing.with_upstreams(lines, {each.name: each.server.spec() for each in new})

    def require_loading(self, text: str, variables: Sequence[Variable], environ: Mapping[str, str]) -> None:
        """
        Raises:
            ManifestError: With every variable set, a portal would not take the text.
        """
        written = Existing.of(text)
        values = dict.fromkeys(written.needed, UNKNOWN)
        values |= dict.fromkeys(written.starts_of_urls, UNKNOWN_URL)
        values |= {each.name: each.value for each in variables if each.value is not None}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.manifest.path.name
            path.write_text(text, "utf-8", newline="")
            load_manifest(path, {**values, **self.kept, **environ}, _pretended)

    def write(self, text: str) -> None:
        """Put the manifest in place; of one that is there, its mode stays and a link to it stays a link.

        Raises:
            ClientFileError: It cannot be written, or somebody has written it meanwhile.
        """
        if self.is_there:
            mark = BOM if self.manifest.text().startswith(BOM) else ""
            self.manifest.replace((mark + text).encode())
            return
        path = self.manifest.path
        try:
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
        except FileExistsError:
            if path.is_symlink() and not path.exists():
                raise ClientFileError(path, "is a link to a file that is not there") from None
            raise ClientFileError(path, "somebody else has just written it; it was left as it is") from None
        except OSError as error:
            raise ClientFileError(path, f"cannot be written: {error.strerror or 'unknown reason'}") from None

    def keep(self, variables: Sequence[Variable]) -> list[str]:
        """Write the values of secrets to portal.env; the names of those that were not there.

        Raises:
            ClientFileError: It cannot be written.
        """
        new = {
            each.name: each.value
            for each in variables
            if each.value is not None and each.name not in self.kept
        }
        if new:
            self.env.replace(env_text(new, self.env.text()).encode())
        return list(new)


def _pretended(references: Collection[SecretReference], folder: Path) -> Mapping[SecretReference, str]:
    """To import is not to run the commands of a manifest that is there."""
    return dict.fromkeys(references, "unknown")
