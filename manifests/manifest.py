"""A loaded manifest: what it says, and where it says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from manifests.json_value import Json
from manifests.lock import Lock
from manifests.names import namespace_of
from manifests.portal_manifest import PortalManifest
from manifests.references import Template
from manifests.rules import Rules
from manifests.yaml_source import KeyPath, Place


@dataclass(frozen=True, eq=False)
class Manifest:
    """What the operator wrote, with defaults for the rest.

    `folder` is what relative paths in it are relative to; `path` is None when there is no file. With a `profile` it
    says what is left for callers bound to that; see `manifests.narrowing`.
    """

    portal: PortalManifest
    folder: Path
    path: Path | None = None
    places: Mapping[KeyPath, Place] = field(default_factory=dict, repr=False)
    profile: str | None = None
    lock: Lock | None = field(default=None, repr=False)
    """The accepted definitions of tools; without a lockfile every definition is accepted."""

    templates: Mapping[KeyPath, Template] = field(default_factory=dict, repr=False)
    """The strings that hold a secret from a command or the keyring, as they were written."""
    hidden: frozenset[str] = field(default=frozenset(), repr=False)
    """The secrets that references stood for: to be masked wherever they turn up."""
    credentials: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)
    """Those of them that each upstream has."""
    written: Mapping[str, Json] = field(default_factory=dict, repr=False)
    """The sections of `upstreams` as they were written, references as such."""

    def where(self, *keys: str | int) -> str:
        """`portal.yaml:14:5`, where a key stands, or `capabilities.limits.tool_calls (default)`."""
        place = self.places.get(keys)
        if place and self.path:
            return f"{self.path.name}:{place.line}:{place.column}"
        return f"{'.'.join(map(str, keys))} (default)"

    @cached_property
    def namespaces(self) -> Mapping[str, str]:
        """The namespace of each upstream, by its name in the manifest."""
        return {upstream: namespace_of(upstream) for upstream in self.portal.upstreams}

    @cached_property
    def rules(self) -> Rules:
        """What it says of tools and flows, compiled; `manifests.decision` asks it."""
        return Rules(self.portal, self.namespaces, self.profile)
