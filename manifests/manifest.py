"""A loaded manifest: its settings, their places in the file, and its compiled rules about tools."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from manifests.conditions import ArgumentCondition
from manifests.constraints import MAKE_SECRET, HostPattern
from manifests.errors import KeyPath, Place, Problem, problem_at
from manifests.grants import ANY, NETWORK, AllowRule, Annotation, DenyRule, FlowRule, Hints, ToolRules
from manifests.json_value import Json
from manifests.names import Glob, ToolNames, namespace_of
from manifests.own_files import Lock
from manifests.portal_manifest import STORE, Capabilities, HttpUpstream, PortalManifest, Profile, readings
from manifests.references import CallerHeader, ClaimReference, Template


@dataclass(frozen=True, eq=False)
class Manifest:
    """The operator's settings, with defaults for the rest.

    Relative paths are relative to `folder`; `path` is None without a file. With a `profile` it has the capabilities
    of that profile's callers; see `narrowed`.
    """

    portal: PortalManifest
    folder: Path
    path: Path | None = None
    places: Mapping[KeyPath, Place] = field(default_factory=dict, repr=False)
    profile: str | None = None
    lock: Lock | None = field(default=None, repr=False)
    """The accepted definitions of tools; without a lockfile every definition is accepted."""

    templates: Mapping[KeyPath, Template] = field(default_factory=dict, repr=False)
    """The strings with a secret from a command or the keyring, unresolved."""
    hidden: frozenset[str] = field(default=frozenset(), repr=False)
    """The resolved secrets, which are masked everywhere."""
    credentials: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)
    """The resolved secrets of each upstream."""
    written: Mapping[str, Json] = field(default_factory=dict, repr=False)
    """All of it as written, with unresolved references."""
    caller_headers: Mapping[str, Mapping[str, CallerHeader]] = field(default_factory=dict, repr=False)
    """The headers of each upstream that name claims of the caller. The upstreams' own `headers` lack them."""

    hashes: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The sha256 of each of its files, by the path relative to `folder`."""
    modules: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The content of the middleware files beside it, by path."""
    waiting: tuple[str, ...] = ()
    """Files that changed since a person accepted them. Their current content is not in effect."""

    def where(self, *keys: str | int) -> str:
        """The place of a key: `portal.yaml:14:5`, or `capabilities.limits.tool_calls (default)`."""
        place = self.places.get(keys)
        if place and self.path:
            return f"{self.path.name}:{place.line}:{place.column}"
        return f"{'.'.join(map(str, keys))} (default)"

    def section(self, upstream: str) -> Json:
        """The section of an upstream as written."""
        sections = self.written.get("upstreams")
        return sections.get(upstream) if isinstance(sections, dict) else None

    @cached_property
    def namespaces(self) -> Mapping[str, str]:
        """Namespaces by the upstream's name in the manifest."""
        return {upstream: namespace_of(upstream) for upstream in self.portal.upstreams}

    @property
    def caller_claims(self) -> frozenset[str]:
        """The claims of callers that headers name."""
        parts = chain.from_iterable(
            chain.from_iterable(each.values()) for each in self.caller_headers.values()
        )
        return frozenset(part.claim for part in parts if isinstance(part, ClaimReference))

    @cached_property
    def rules(self) -> "Rules":
        """The compiled rules about tools and flows, for `manifests.decision`."""
        return Rules(self.portal, self.namespaces, self.profile)


def narrowed(manifest: Manifest, profile: str) -> Manifest:
    """The manifest narrowed by one of its profiles. `where` gives the profile's place for what it changes."""
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


def validation_problems(
    portal: PortalManifest,
    places: Mapping[KeyPath, Place],
    caller_headers: Mapping[str, Mapping[str, CallerHeader]],
) -> Iterator[Problem]:
    """Problems between sections: profiles that would widen capabilities, unknown and colliding names."""
    sections = [("capabilities",), *(("profiles", name) for name in portal.profiles)]
    found = [_profile_problems(portal, name) for name in portal.profiles]
    found += [_flow_problems(portal, keys) for keys in sections]
    for keys, message, hint in dict.fromkeys(
        chain(
            _namespace_collisions(portal),
            *found,
            _token_problems(portal),
            _tenant_problems(portal),
            _approver_problems(portal),
            _telemetry_problems(portal),
            _audit_problems(portal),
            _fallback_problems(portal),
            _caller_problems(portal, caller_headers),
        )
    ):
        yield problem_at(places, keys, message, hint)


Finding: TypeAlias = tuple[KeyPath, str, str]
"""Keys, message and hint."""


def _namespace_collisions(portal: PortalManifest) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for name in portal.upstreams:
        namespace = namespace_of(name)
        if (other := first.setdefault(namespace, name)) != name:
            message = f"the upstreams {other!r} and {name!r} have the same namespace {namespace}"
            yield ("upstreams", name), message, "Rename one of them."


def _profile_problems(portal: PortalManifest, name: str) -> Iterator[Finding]:
    base, profile = portal.capabilities, portal.profiles[name]
    for limit in profile.limits.model_fields_set:
        own, most = getattr(profile.limits, limit), getattr(base.limits, limit)
        if limit == "background_seconds":
            most = base.limits.of_run(is_background=True)[1].wall_seconds
        if own > most:
            message = f"{limit} is {own:g}, above the {most:g} of capabilities.limits; a profile only narrows"
            yield ("profiles", name, "limits", limit), message, "Lower it, or raise capabilities.limits."
    for index, variable in enumerate(profile.environment or ()):
        if variable not in base.environment:
            message = f"{variable} is not in capabilities.environment; a profile only narrows"
            yield ("profiles", name, "environment", index), message, _near(variable, base.environment)
    for index, host in enumerate(profile.network or ()):
        granted = () if base.network is None else (*base.network.allow, *base.network.private)
        if not _is_covered(host, granted):
            message = f"{host} is not in capabilities.network; a profile only narrows"
            yield ("profiles", name, "network", index), message, ""
    if profile.files == "read" and base.files is not None and base.files.share in ("session", "run"):
        message = f"read-only access is useless here: {base.files.share} folders start empty"
        yield ("profiles", name, "files"), message, "Write `files: none`."


def _flow_problems(portal: PortalManifest, keys: KeyPath) -> Iterator[Finding]:
    section = portal.capabilities if len(keys) == 1 else portal.profiles[str(keys[1])]
    known = [*portal.upstreams, NETWORK, ANY]
    for index, rule in enumerate(section.flows):
        for end, names in (("from", rule.from_), ("not_to", rule.not_to)):
            for name in names:
                if name not in known:
                    path = (*keys, "flows", index, end)
                    yield path, f"there is no upstream {name!r}", _near(name, known)
    if section.flows and NETWORK in portal.upstreams:
        message = f"{NETWORK} is reserved when flows are set: it means portal.fetch"
        yield ("upstreams", NETWORK), message, "Rename the upstream."


def _token_problems(portal: PortalManifest) -> Iterator[Finding]:
    known = {portal.server.token.get_secret_value()} if portal.server.token else set()
    for index, token in enumerate(portal.server.tokens):
        keys = ("server", "tokens", index)
        if token.token.get_secret_value() in known:
            hint = "Callers with the same token cannot be distinguished. Use a different one."
            yield (*keys, "token"), "the token repeats another one", hint
        known.add(token.token.get_secret_value())
        if token.name is not None and token.name in [each.name for each in portal.server.tokens[:index]]:
            yield (*keys, "name"), f"the name {token.name!r} repeats another one", "Use a different one."
        profile = None if token.profile is None else portal.profiles.get(token.profile)
        if token.profile is not None and profile is None:
            hint = _near(token.profile, portal.profiles)
            yield (*keys, "profile"), f"there is no profile {token.profile!r}", hint
        if token.tenant is None and _shares_by_tenant(portal) and not (profile and profile.files == "none"):
            message = "the token has no tenant, but capabilities.files shares files by tenant"
            yield keys, message, "Set `tenant: NAME`."


def _shares_by_tenant(portal: PortalManifest) -> bool:
    files = portal.capabilities.files
    return files is not None and files.share == "tenant"


def _tenant_problems(portal: PortalManifest) -> Iterator[Finding]:
    tenants = portal.tenants
    for key, entry in tenants.entries.items() if tenants else ():
        path = ("tenants", "profiles", key)
        if entry.profile not in portal.profiles:
            yield path, f"there is no profile {entry.profile!r}", _near(entry.profile, portal.profiles)
        found = readings(key) if isinstance(key, str) else []
        if isinstance(key, str) and key != "*" and not found:
            hint = 'Write "claim:value", like "groups:admins", or "*" for all others.'
            yield path, f"{key!r} names no claim and value", hint
        if len(found) > 1:
            example = json.dumps({"claim": found[0][0], "value": found[0][1], "profile": entry.profile})
            hint = f"Write profiles as a list, with entries like {example}."
            yield path, f"{key!r} may mean the claim {found[0][0]!r} or {found[-1][0]!r}", hint
    if tenants is not None and portal.server.auth is None:
        yield ("tenants",), "no one signs in: server.auth is not set", "Set server.auth, or remove tenants."
    if portal.server.auth is not None and _shares_by_tenant(portal) and not (tenants and tenants.claim):
        message = "people who sign in have no tenant, but capabilities.files shares files by tenant"
        yield ("server", "auth"), message, "Set tenants.claim."


def _approver_problems(portal: PortalManifest) -> Iterator[Finding]:
    names = [token.name for token in portal.server.tokens if token.name is not None]
    for index, approver in enumerate(portal.capabilities.approvers):
        keys, (kind, _, name) = ("capabilities", "approvers", index), approver.partition(":")
        if kind == "claim":
            if portal.server.auth is None:
                yield keys, "no one signs in: server.auth is not set", "Set server.auth, or remove it."
        elif name not in (known := names if kind == "token" else [*portal.profiles]):
            yield keys, f"there is no {kind} {name!r}", _near(name, known)


def _telemetry_problems(portal: PortalManifest) -> Iterator[Finding]:
    telemetry, server = portal.telemetry, portal.server
    if telemetry is None or not telemetry.metrics or telemetry.metrics_token or server.token:
        return
    if server.knows_callers:
        message = "no one may read /metrics: neither server.tokens nor sign-in gives access"
        yield ("telemetry", "metrics"), message, 'Set metrics_token: "${METRICS_TOKEN}".'


def _audit_problems(portal: PortalManifest) -> Iterator[Finding]:
    if portal.audit is not None and portal.audit.to == STORE and not portal.runs.is_shared:
        message = "store means the Postgres database of runs.store, and runs.store is not one"
        yield ("audit", "to"), message, "Set runs.store to its URL, or write the log to a file."


def _fallback_problems(portal: PortalManifest) -> Iterator[Finding]:
    known = [
        namespace_of(name, is_former=is_former) for is_former in (False, True) for name in portal.upstreams
    ]
    for function, others in portal.fallback.items():
        keys = ("fallback", function)
        for path, name in ((keys, function), *(((*keys, n), other) for n, other in enumerate(others))):
            namespace = name.partition(".")[0]
            if namespace not in known:
                yield path, f"{name}: no upstream has the namespace {namespace}", _near(namespace, known)
        if function in others:
            yield (*keys, others.index(function)), f"{function} falls back to itself", "Remove it."


def _caller_problems(
    portal: PortalManifest, caller_headers: Mapping[str, Mapping[str, CallerHeader]]
) -> Iterator[Finding]:
    """Find what is missing to identify callers and to store their tokens.

    Without server.auth the only person is the one who runs the portal. Those logins are not in the store of runs.
    """
    server, auth = portal.server, portal.server.auth
    signing_in = [
        ("upstreams", name, "oauth", "per")
        for name, spec in portal.upstreams.items()
        if isinstance(spec, HttpUpstream) and spec.is_per_caller
    ]
    if auth is None:
        named = [("upstreams", name, "headers", each) for name, own in caller_headers.items() for each in own]
        named += signing_in if server.token or server.tokens else []
        for path in named:
            message = "needs to know which person calls, but no one signs in: server.auth is not set"
            yield path, message, "Set server.auth."
        return
    for path in signing_in:
        if portal.runs.key is None:
            message = "keeps tokens of people, but there is no runs.key to encrypt them"
            yield path, message, f"Set runs.key: ${{PORTAL_KEY}}. {MAKE_SECRET}"
        if auth.client_id is None:
            message = "lets people sign in by a browser, but there is no server.auth.client_id"
            redirect = f"{auth.base_url}/oauth/sign-in/identity"
            yield path, message, f"Register the portal at the issuer, with the redirect URI {redirect}."


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
        left = {
            each: tuple(host for host in profile.network if _is_covered(host, getattr(base.network, each)))
            for each in ("allow", "private")
        }
        update["network"] = base.network.model_copy(update=left) if any(left.values()) else None
    return base.model_copy(update=update)


def _is_covered(host: str, by: Sequence[str]) -> bool:
    return any(HostPattern.parse(each).covers(HostPattern.parse(host)) for each in by)


def _near(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known names: {', '.join(known) or 'none'}."


_SET = re.compile(r"\[!?\]?[^\]]*\]")


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One item of an `allow`, `deny` or `ask` list. `keys` are its path in the manifest."""

    glob: Glob
    annotation: Annotation | None
    condition: ArgumentCondition
    keys: KeyPath

    @classmethod
    def of(cls, item: str | DenyRule, keys: KeyPath) -> "Rule":
        rule = DenyRule(tool=item) if isinstance(item, str) else item
        own = (rule.where, rule.schema_) if isinstance(rule, AllowRule) else ()
        return cls(Glob.of(rule.tool), rule.annotation, ArgumentCondition(*own), keys)

    @property
    def is_restricting(self) -> bool:
        """Whether it is of a `deny` or `ask` list."""
        return self.keys[-2] != "allow"

    @property
    def is_naming(self) -> bool:
        """Whether it names its tools, with a letter or digit outside of wildcards or with `annotation: destructive`."""
        literal = _SET.sub("", self.glob.pattern)
        return self.annotation == "destructive" or any(map(str.isalnum, literal))

    @property
    def written(self) -> str:
        """The rule as YAML, without its conditions."""
        if self.annotation is None:
            return f'"{self.glob.pattern}"'
        tool = "" if self.glob.pattern == "*" else f'tool: "{self.glob.pattern}", '
        return f"{{{tool}annotation: {self.annotation}}}"

    @property
    def means_fetch(self) -> bool:
        return self.annotation is None and self.glob.means_fetch

    def fits(self, names: Sequence[str], hints: Hints) -> bool:
        return (self.annotation is None or hints.has(self.annotation)) and self.glob.fits(names)

    def restricts(self, names: ToolNames, hints: Hints) -> bool:
        return (self.annotation is None or hints.has(self.annotation)) and self.glob.restricts(names)

    def __str__(self) -> str:
        if self.annotation is None:
            return self.glob.pattern
        return f"{self.annotation} tools" + (f" of {self.glob.pattern}" if self.glob.pattern != "*" else "")


@dataclass(frozen=True, slots=True)
class Budget:
    """How often tools may be called: `calls` per run, `per_minute` by all runs of a portal; None means no limit."""

    glob: Glob
    calls: int | None
    per_minute: int | None
    keys: KeyPath


class ToolSection:
    def __init__(self, section: ToolRules, *keys: str) -> None:
        self.keys: KeyPath = (*keys, "tools")
        self.destructive = section.destructive
        self.allow = [Rule.of(each, (*self.keys, "allow", n)) for n, each in enumerate(section.allow)]
        self.deny = [Rule.of(each, (*self.keys, "deny", n)) for n, each in enumerate(section.deny)]
        self.ask = [Rule.of(each, (*self.keys, "ask", n)) for n, each in enumerate(section.ask)]
        self.budgets = [
            Budget(Glob.of(each.tool), each.calls, each.per_minute, (*self.keys, "budgets", n))
            for n, each in enumerate(section.budgets)
        ]

    def conditions(
        self, names: ToolNames, hints: Hints, allowing: Sequence[Rule]
    ) -> Iterator[tuple[Rule, ...]]:
        """The groups of conditional rules for a tool: the arguments must satisfy one rule of each group.

        `allowing` are the rules that allow it now. Rules that match the same name of the function form a group. A rule
        for another name cannot replace them: otherwise an upstream could escape a condition by renaming tools.
        """
        rules = [rule for rule in self.allow if rule.condition]
        called = [names.current, names.default]
        if any(rule.glob.spells(names) for rule in rules):
            called.append(names.suffixed)
        found = (tuple(rule for rule in rules if rule.fits(each, hints)) for each in called)
        own = tuple(rule for rule in allowing if rule.condition)
        yield from (group for group in dict.fromkeys((own, *found)) if group)


class Rules:
    """All `tools` sections and flows that bind a caller."""

    def __init__(
        self, portal: PortalManifest, namespaces: Mapping[str, str], profile: str | None = None
    ) -> None:
        bound: list[tuple[Capabilities | Profile, tuple[str, ...]]] = [
            (portal.capabilities, ("capabilities",))
        ]
        if profile is not None:
            bound.append((portal.profiles[profile], ("profiles", profile)))
        self.of_portal = [ToolSection(each.tools, *keys) for each, keys in bound]
        """The sections that also cover `portal.fetch` and the methods of resources and prompts."""
        self.flows: list[tuple[FlowRule, KeyPath]] = [
            (rule, (*keys, "flows", index)) for each, keys in bound for index, rule in enumerate(each.flows)
        ]
        self.upstreams = {
            name: ToolSection(upstream.tools, "upstreams", name)
            for name, upstream in portal.upstreams.items()
        }
        self._namespaces = namespaces
        self._owners = {namespace_of(upstream, is_former=True): upstream for upstream in namespaces}
        self._owners.update({name: upstream for upstream, name in namespaces.items()})
        self._owners.update({upstream: upstream for upstream in namespaces})

    def __iter__(self) -> Iterator[ToolSection]:
        yield from (*self.of_portal, *self.upstreams.values())

    def sections(self, upstream: str) -> list[ToolSection]:
        """The sections that a tool of an upstream must pass."""
        return [self.of_portal[0], self.upstreams[upstream], *self.of_portal[1:]]

    def names(self, upstream: str, tool: str, function: str) -> ToolNames:
        """The names by which a pattern may match a tool."""
        return ToolNames(upstream, self._namespaces[upstream], tool, function)

    def allowing(self, section: ToolSection, names: ToolNames, hints: Hints) -> list[Rule]:
        own = self._own_names(names)
        return [rule for rule in section.allow if rule.fits(own, hints)]

    def is_named(self, section: ToolSection, names: ToolNames, hints: Hints) -> bool:
        """Whether the section names a tool: in `allow`, or in `ask`, so that a person decides about each call."""
        own = self._own_names(names)
        return any(rule.is_naming and rule.fits(own, hints) for rule in (*section.allow, *section.ask))

    def _own_names(self, names: ToolNames) -> list[str]:
        """The names under which a rule may grant a tool.

        Upstreams choose the names of their tools. An `allow` for `files.*` means the upstream `files`, and must not
        match a tool named `files.read` of another upstream.
        """
        return [name for name in names.allow_names if self.owner(name) in (None, names.upstream)]

    def counts(self, budget: Budget, names: ToolNames) -> bool:
        """Whether a call of a tool spends the budget. A tool that is named `mail.send` spends none of upstream mail."""
        is_own = budget.keys[0] == "upstreams" or self.owner(budget.glob.pattern) in (None, names.upstream)
        return is_own and budget.glob.restricts(names)

    def flow_against(self, sources: Collection[str], destination: str) -> tuple[KeyPath, str] | None:
        """The first rule that forbids a call to `destination` after calls to `sources`, and the source it names."""
        for rule, keys in self.flows:
            if meant := [source for source in sources if rule.forbids(source, destination)]:
                return keys, min(meant)
        return None

    def owner(self, name: str) -> str | None:
        """The upstream whose name or namespace is the longest prefix of a dotted name."""
        while (end := name.rfind(".")) > 0:
            name = name[:end]
            if owner := self._owners.get(name):
                return owner
        return None
