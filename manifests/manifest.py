"""A loaded manifest: what it says, and where it says it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

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
from manifests.yaml_source import KeyPath, Place


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
    for name, profile in portal.profiles.items():
        for limit in profile.limits.model_fields_set:
            own, most = getattr(profile.limits, limit), getattr(portal.capabilities.limits, limit)
            if own > most:
                message = (
                    f"{limit} is {own:g}, more than capabilities.limits has: {most:g}; a profile only narrows"
                )
                yield _problem(
                    places, message, "Lower it, or raise the other.", "profiles", name, "limits", limit
                )
        for index, variable in enumerate(profile.environment or ()):
            if variable not in portal.capabilities.environment:
                message = f"{variable} is not in capabilities.environment; a profile only narrows"
                keys = ("profiles", name, "environment", index)
                yield _problem(places, message, _near(variable, portal.capabilities.environment), *keys)
        yield from _grant_slips(portal.capabilities, profile, places, name)
        yield from _flow_slips(portal, places, ("profiles", name))
    yield from _flow_slips(portal, places, ("capabilities",))
    yield from _network_slips(portal, places)
    known = {portal.server.token.get_secret_value()} if portal.server.token else set()
    for index, token in enumerate(portal.server.tokens):
        if token.token.get_secret_value() in known:
            hint = "Whoever sends it could not be told apart. Give each its own."
            yield _problem(
                places, "is a token that is here already", hint, "server", "tokens", index, "token"
            )
        known.add(token.token.get_secret_value())
        if token.profile is not None and token.profile not in portal.profiles:
            message = f"there is no profile {token.profile!r}"
            yield _problem(
                places, message, _near(token.profile, portal.profiles), "server", "tokens", index, "profile"
            )
        if token.tenant is None and _has_files_of_a_tenant(portal, token.profile):
            message = "is of no tenant, and files are shared by tenant (capabilities.files)"
            yield _problem(places, message, "Say whose it is with tenant: NAME.", "server", "tokens", index)


def _has_files_of_a_tenant(portal: PortalManifest, profile: str | None) -> bool:
    files = portal.capabilities.files
    narrowed = None if profile is None else portal.profiles.get(profile)
    return files is not None and files.share == "tenant" and (narrowed is None or narrowed.files != "none")


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


def _grant_slips(
    base: Capabilities, profile: Profile, places: Mapping[KeyPath, Place], name: str
) -> Iterator[Problem]:
    for index, host in enumerate(profile.network or ()):
        granted = () if base.network is None else (*base.network.allow, *base.network.private)
        if not _is_covered(host, granted):
            message = f"{host} is not among the hosts of capabilities.network; a profile only narrows"
            yield _problem(places, message, "", "profiles", name, "network", index)
    if profile.files == "read" and base.files is not None and base.files.share in ("session", "run"):
        message = f"files are shared by {base.files.share}: there is nothing to read for who may not write"
        yield _problem(places, message, "Write none.", "profiles", name, "files")


def _flow_slips(portal: PortalManifest, places: Mapping[KeyPath, Place], keys: KeyPath) -> Iterator[Problem]:
    section = portal.capabilities if keys == ("capabilities",) else portal.profiles[str(keys[1])]
    known = [*portal.upstreams, NETWORK, ANY]
    for index, rule in enumerate(section.flows):
        for end, names in (("from", rule.from_), ("not_to", rule.not_to)):
            for position, name in enumerate(names):
                if name not in known:
                    path = (*keys, "flows", index, end, position)
                    yield _problem(places, f"there is no upstream {name!r}", _near(name, known), *path)


def _network_slips(portal: PortalManifest, places: Mapping[KeyPath, Place]) -> Iterator[Problem]:
    flows = [*portal.capabilities.flows, *(flow for each in portal.profiles.values() for flow in each.flows)]
    if flows and NETWORK in portal.upstreams:
        message = f"no upstream may be called {NETWORK} where there are flows: to them that is portal.fetch"
        yield _problem(places, message, "Give it another name.", "upstreams", NETWORK)


def _near(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known) or 'none'}."


def _problem(places: Mapping[KeyPath, Place], message: str, hint: str, *keys: str | int) -> Problem:
    path: KeyPath = keys
    while path and path not in places:
        path = path[:-1]
    place = places.get(path) or Place(1, 1, 1, 1)
    return Problem(message, place.value_line, place.value_column, hint, ".".join(map(str, keys)))
