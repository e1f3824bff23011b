"""Decides who may decide about a call that waits for a person.

Rule 1: the check is made where a decision is written (`portal.runs.decisions.decide_call`), however it arrived.
Rule 2: a terminal decides about every call: whoever can write the store may.
"""

from dataclasses import dataclass
from typing import Final, Self

from manifests.manifest import Manifest
from portal.base.caller import Bearer, identity_of, tenant_of, values_of
from portal.base.errors import RunsError


@dataclass(frozen=True, slots=True)
class Decider:
    """A person or program that decides. `by` is recorded with the decision."""

    by: str
    owner: str | None = None
    """The owner of its own runs; None at a terminal."""
    bearer: Bearer | None = None
    is_known: bool = True
    """False over HTTP without a token: any program that reaches the port may send it, even a script."""


NOBODY: Final = Decider("", "", is_known=False)


@dataclass(frozen=True, slots=True)
class Approvers:
    """The manifest's rules about deciding. `profile` applies to callers whose token sets none."""

    entries: frozenset[str] = frozenset()
    four_eyes: bool = False
    profile: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        capabilities = manifest.portal.capabilities
        return cls(frozenset(capabilities.approvers), capabilities.four_eyes, manifest.profile)

    def oversee(self, owner: str, decider: Decider) -> bool:
        """Whether the decider is an approver of the tenant to which this owner's runs belong."""
        if decider.owner is None or not self.include(decider):
            return False
        return tenant_of(owner) == tenant_of(decider.owner)

    def refusal(self, owner: str, decider: Decider) -> RunsError | None:
        """Return why the decider may not decide about calls of this owner's runs; None if it may."""
        if decider.owner is None:
            return None
        if not decider.is_known:
            message = "without a token decisions come from a terminal only"
            return RunsError("token_required", message, "Ask the operator to decide, or to set up tokens.")
        if self.entries and not self.include(decider):
            message = "decisions come from the approvers that the manifest names"
            return RunsError("not_an_approver", message, "Ask one of them.")
        # One person has an owner for each profile, so identities are compared, not owners.
        if self.four_eyes and identity_of(owner) == identity_of(decider.owner):
            message = "no one decides about their own calls here (capabilities.four_eyes)"
            return RunsError("four_eyes", message, "Ask another approver, or the operator.")
        return None

    def include(self, decider: Decider) -> bool:
        bearer = decider.bearer
        own = {f"profile:{(bearer and bearer.profile) or self.profile or ''}", bearer.entry if bearer else ""}
        return decider.is_known and any(
            each in own or (bearer is not None and _claims(bearer, each)) for each in self.entries
        )


def _claims(bearer: Bearer, entry: str) -> bool:
    kind, _, claim = entry.partition(":")
    name, _, value = claim.rpartition("=")
    return kind == "claim" and value in values_of(bearer.token_claims, name)
