"""Profiles narrow, whatever they say, and flows name what is there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.decision import decide, decide_fetch, decide_flow
from manifests.grants import Hints
from manifests.manifest import Manifest, narrowed
from manifests.portal_manifest import PortalManifest
from tests.manifests.conftest import READ_ONLY, Load, Problems, ask

BASE = """\
upstreams: {mail: {command: x}, web: {command: x}, files: {command: x}}
capabilities:
  tools: {allow: ["*", files.delete], deny: [web.post]}
  limits: {tool_calls: 50}
  environment: {A: a, B: b}
  flows: [{from: mail, not_to: web}]
profiles:
  careful:
    tools: {allow: [{annotation: readonly}], budgets: [{tool: "mail.*", calls: 2}]}
    limits: {tool_calls: 5}
    environment: [B]
    flows: [{from: files, not_to: [network]}]
  nothing: {tools: {allow: []}}
  plain:
"""


def test_profile_takes_away_and_says_where(load: Load) -> None:
    careful = narrowed(load(BASE), "careful")
    assert ask(load(BASE), "files.write").granted
    assert ask(careful, "files.read", READ_ONLY).granted
    decision = ask(careful, "files.write")
    assert not decision.granted and decision.rule.startswith("profiles.careful.tools.allow")
    assert decision.where == "portal.yaml:9:13"
    assert careful.portal.capabilities.limits.tool_calls == 5
    assert careful.where("capabilities", "limits", "tool_calls") == "portal.yaml:10:14"
    assert careful.portal.capabilities.environment == {"B": "b"}


@pytest.mark.parametrize(
    ("rule", "source", "destination", "may"),
    [
        ("{from: mail, not_to: '*'}", "mail", "web", False),
        ("{from: mail, not_to: '*'}", "mail", "network", False),
        ("{from: mail, not_to: '*'}", "mail", "mail", True),
        ("{from: '*', not_to: web}", "files", "web", False),
        ("{from: mail, not_to: mail}", "mail", "mail", False),
        ("{from: [mail, files], not_to: '*'}", "mail", "files", True),
    ],
)
def test_flow(load: Load, rule: str, source: str, destination: str, may: bool) -> None:
    upstreams, _, _ = BASE.partition("\n")
    manifest = load(f"{upstreams}\ncapabilities: {{flows: [{rule}]}}\n")
    assert decide_flow(manifest, {source}, destination).granted is may


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "words"),
    [
        ("limits: {tool_calls: 5}", "limits: {tool_calls: 51}", 10, 26, ["51", "50", "narrows"]),
        ("environment: [B]", "environment: [B, C]", 11, 22, ["C", "narrows"]),
        ("from: mail, not_to: web", "from: mial, not_to: web", 6, 18, ["mial", "Did you mean mail?"]),
        ("  plain:", "  plain: {tools: {destructive: allow}}", 14, 32, ["refuse"]),
        ("  plain:", "  plain: {network: [a.example]}", 14, 21, ["a.example", "narrows"]),
        ("  plain:", "  plain: {files: write}", 14, 18, ["none"]),
        ("  plain:", "  'a b': {}", 14, 3, ["a b"]),
        ("  plain:", "  plain:\nserver: {tokens: [{token: x, profile: carefull}]}", 15, 39, ["careful?"]),
        ("  plain:", "  plain:\nserver: {tokens: [{token: x, tenant: ../x}]}", 15, 38, ["tenant"]),
    ],
)
def test_profile_that_widens_or_names_what_is_not_there_is_told_at_its_place(
    problems: Problems, old: str, new: str, line: int, column: int, words: list[str]
) -> None:
    assert old in BASE
    [problem] = problems(BASE.replace(old, new))
    assert (problem.line, problem.column) == (line, column)
    assert all(word in f"{problem.message} {problem.hint}" for word in words)


TENANTS = """
capabilities: {files: {workspace: data, mode: write, share: tenant}}
profiles:
  none: {files: none}
  read: {files: read}
server:
  tokens:
    - {token: a, tenant: anna}
    - {token: b, profile: none}
    - {token: c, tenant: anna, profile: read}
"""


def test_token_that_is_nobodys_is_told_where_files_are_shared_by_tenant(problems: Problems) -> None:
    assert problems(TENANTS) == []
    assert problems(TENANTS.replace("share: tenant", "share: all").replace("tenant: anna, ", "")) == []
    [problem] = problems(TENANTS.replace("c, tenant: anna", "c"))
    assert (problem.line, "tenant: NAME" in problem.hint) == (10, True)


patterns = st.sampled_from(["*", "a*", "up.*", "*_file", "read", "[ab]*", "up.read"])
rules = patterns | st.fixed_dictionaries(
    {"tool": patterns, "annotation": st.sampled_from(["readonly", "destructive", "open_world"])}
)
lists = st.lists(rules, max_size=3)
sections = st.fixed_dictionaries({}, optional={"allow": lists, "deny": lists, "ask": lists})
hints = st.builds(Hints, readonly=st.booleans(), destructive=st.booleans(), open_world=st.booleans())


@given(sections, sections, st.sampled_from(["read", "a_file", "b"]), hints)
def test_no_profile_grants_or_lifts_what_the_manifest_refuses_or_asks(
    base: dict[str, object], profile: dict[str, object], tool: str, hints: Hints
) -> None:
    sections = {"capabilities": {"tools": base}, "profiles": {"p": {"tools": profile}}}
    portal = PortalManifest.model_validate({"upstreams": {"up": {"url": "http://localhost"}}, **sections})
    manifest = Manifest(portal, Path())
    facts = {"upstream": "up", "tool": tool, "function": tool, "hints": hints}
    if (of_profile := decide(narrowed(manifest, "p"), **facts)).granted:  # type: ignore[arg-type]  # the same facts
        of_all = decide(manifest, **facts)  # type: ignore[arg-type]
        assert of_all.granted and (of_profile.asks or not of_all.asks)


@pytest.mark.parametrize(
    ("base", "hosts", "left"),
    [
        ("allow: [a.example, b.example]", "[a.example]", ("a.example",)),
        ("allow: ['*.example']", "[a.example]", ("a.example",)),
        ("allow: ['*.example']", "['*.a.example']", ("*.a.example",)),
        ("allow: [a.example]", "[]", None),
    ],
)
def test_network_of_a_profile_is_a_part(load: Load, base: str, hosts: str, left: object) -> None:
    text = f"capabilities: {{network: {{{base}}}}}\nprofiles: {{p: {{network: {hosts}}}}}\n"
    network = narrowed(load(text), "p").portal.capabilities.network
    assert (network and network.allow) == left


@pytest.mark.parametrize("hosts", ["'*.example'", "a.example:8443"])
def test_network_of_a_profile_that_is_more_is_refused(problems: Problems, hosts: str) -> None:
    text = f"capabilities: {{network: {{allow: [a.example]}}}}\nprofiles: {{p: {{network: [{hosts}]}}}}\n"
    assert [(problem.line, problem.key) for problem in problems(text)] == [(2, "profiles.p.network.0")]


HOSTS = """\
capabilities: {network: {allow: [a.example, b.example]}}
profiles:
  one: {network: [a.example]}
  none: {network: []}
  all: {files: none}
"""


@pytest.mark.parametrize(
    ("profile", "verdict", "rule", "where"),
    [
        ("one", "allow", "profiles.one.network", "portal.yaml:3:9"),
        ("none", "deny", "profiles.none.network", "portal.yaml:4:10"),
        ("all", "allow", "capabilities.network", "portal.yaml:1:16"),
    ],
)
def test_decision_about_fetching_has_its_place(
    load: Load, profile: str, verdict: str, rule: str, where: str
) -> None:
    decision = decide_fetch(narrowed(load(HOSTS), profile))
    assert (decision.verdict, decision.rule.split()[0], decision.where) == (verdict, rule, where)
