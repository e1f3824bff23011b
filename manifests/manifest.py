"""A loaded manifest: what it says, and where it says it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from manifests.errors import Problem
from manifests.grants import NetworkGrant
from manifests.hosts import HostPattern
from manifests.json_value import Json
from manifests.lock import Lock
from manifests.names import namespace_of
from manifests.portal_manifest import Capabilities, PortalManifest, Profile
from manifests.references import Template
from manifests.rules import Rules
from manifests.tool_rules import ANY, NETWORK
from manifests.yaml_source import KeyPath, Place, nearest


@dataclass(frozen=True, eq=False)
class Manifest:
    """What the operator wrote, with defaults for the rest.

    `folder` is what relative paths in it are relative to; `path` is None when there is no file. With a `profile` it
    says what is left for callers bound to that; see `manifests.manifest`.
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


def narrowed(manifest: Manifest, profile: str) -> Manifest:
    """What is left of a manifest under one of its profiles. `where` names the profile's place for what it changes."""
    own = manifest.portal.profiles[profile]
    capabilities = _capabilities(manifest.portal.capabilities, own)
    portal = manifest.portal.model_copy(update={"capabilities": capabilities})
    places = dict(manifest.places)
    for limit in own.limits.model_fields_set:
        if place := manifest.places.get(("profiles", profile, "limits", limit)):
            places["capabilities", "limits", limit] = place
    if place := manifest.places.get(("profiles", profile, "network")):
        places["capabilities", "network", "allow"] = place
    return replace(manifest, portal=portal, places=places, profile=profile)


def slips(portal: PortalManifest, places: Mapping[KeyPath, Place]) -> Iterator[Problem]:
    """Profiles that would widen, and names of profiles, upstreams and variables that are nobody's."""
    sections = [("capabilities",), *(("profiles", name) for name in portal.profiles)]
    found = [_profile_slips(portal, name) for name in portal.profiles]
    found += [_flow_slips(portal, keys) for keys in sections]
    for keys, message, hint in dict.fromkeys(chain(_name_slips(portal), *found, _token_slips(portal))):
        place = nearest(places, keys)
        yield Problem(message, place.value_line, place.value_column, hint, ".".join(map(str, keys)))


_Slip: TypeAlias = tuple[KeyPath, str, str]
"""Where it is, what it is, and what to write."""


def _name_slips(portal: PortalManifest) -> Iterator[_Slip]:
    first: dict[str, str] = {}
    for name in portal.upstreams:
        namespace = namespace_of(name)
        if (other := first.setdefault(namespace, name)) != name:
            told = f"the upstreams {other!r} and {name!r} both give the namespace {namespace}"
            yield ("upstreams", name), told, "Rename one of them."


def _profile_slips(portal: PortalManifest, name: str) -> Iterator[_Slip]:
    base, profile = portal.capabilities, portal.profiles[name]
    for limit in profile.limits.model_fields_set:
        own, most = getattr(profile.limits, limit), getattr(base.limits, limit)
        if own > most:
            told = f"{limit} is {own:g}, more than capabilities.limits has: {most:g}; a profile only narrows"
            yield ("profiles", name, "limits", limit), told, "Lower it, or raise the other."
    for index, variable in enumerate(profile.environment or ()):
        if variable not in base.environment:
            told = f"{variable} is not in capabilities.environment; a profile only narrows"
            yield ("profiles", name, "environment", index), told, _near(variable, base.environment)
    for index, host in enumerate(profile.network or ()):
        granted = () if base.network is None else (*base.network.allow, *base.network.private)
        if not _is_covered(host, granted):
            told = f"{host} is not among the hosts of capabilities.network; a profile only narrows"
            yield ("profiles", name, "network", index), told, ""
    if profile.files == "read" and base.files is not None and base.files.share in ("session", "run"):
        told = f"files are shared by {base.files.share}: there is nothing to read for who may not write"
        yield ("profiles", name, "files"), told, "Write none."


def _flow_slips(portal: PortalManifest, keys: KeyPath) -> Iterator[_Slip]:
    section = portal.capabilities if len(keys) == 1 else portal.profiles[str(keys[1])]
    known = [*portal.upstreams, NETWORK, ANY]
    for index, rule in enumerate(section.flows):
        for end, names in (("from", rule.from_), ("not_to", rule.not_to)):
            for name in names:
                if name not in known:
                    path = (*keys, "flows", index, end)
                    yield path, f"there is no upstream {name!r}", _near(name, known)
    if section.flows and NETWORK in portal.upstreams:
        told = f"no upstream may be called {NETWORK} where there are flows: to them that is portal.fetch"
        yield ("upstreams", NETWORK), told, "Give it another name."


def _token_slips(portal: PortalManifest) -> Iterator[_Slip]:
    known = {portal.server.token.get_secret_value()} if portal.server.token else set()
    files = portal.capabilities.files
    for index, token in enumerate(portal.server.tokens):
        keys = ("server", "tokens", index)
        if token.token.get_secret_value() in known:
            hint = "Whoever sends it could not be told apart. Give each its own."
            yield (*keys, "token"), "is a token that is here already", hint
        known.add(token.token.get_secret_value())
        profile = None if token.profile is None else portal.profiles.get(token.profile)
        if token.profile is not None and profile is None:
            hint = _near(token.profile, portal.profiles)
            yield (*keys, "profile"), f"there is no profile {token.profile!r}", hint
        is_shared = files is not None and files.share == "tenant"
        if token.tenant is None and is_shared and not (profile and profile.files == "none"):
            told = "is of no tenant, and files are shared by tenant (capabilities.files)"
            yield keys, told, "Say whose it is with tenant: NAME."


def _capabilities(base: Capabilities, profile: Profile) -> Capabilities:
    lowered = {limit: getattr(profile.limits, limit) for limit in profile.limits.model_fields_set}
    variables = base.environment if profile.environment is None else profile.environment
    update: dict[str, object] = {
        "limits": base.limits.model_copy(update=lowered),
        "environment": {name: base.environment[name] for name in variables},
    }
    if profile.files == "none":
        update["files"] = None
    elif profile.files == "read" and base.files is not None:
        update["files"] = base.files.model_copy(update={"mode": "read"})
    if profile.network is not None and base.network is not None:
        update["network"] = _network(base.network, profile.network)
    return base.model_copy(update=update)


def _network(base: NetworkGrant, hosts: Sequence[str]) -> NetworkGrant | None:
    update = {
        "allow": tuple(host for host in hosts if _is_covered(host, base.allow)),
        "private": tuple(host for host in hosts if _is_covered(host, base.private)),
    }
    return base.model_copy(update=update) if any(update.values()) else None


def _is_covered(host: str, by: Sequence[str]) -> bool:
    return any(HostPattern.parse(each).covers(HostPattern.parse(host)) for each in by)


def _near(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known) or 'none'}."
