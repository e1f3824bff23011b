"""Who looks at a page of the console."""

import json
from dataclasses import dataclass
from typing import Final, Self

from portal.identity.approvers import Decider

HEADER: Final = "mcp-code-portal-visitor"
"""Tells a portal who visits, on its socket only: whoever may connect to that is the portal's user."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person at a browser. Sees the runs of `decider.owner`; those of all owners if that is None.

    A session that a terminal opened has a Decider without an owner: it may decide whatever the terminal may.
    """

    decider: Decider
    may_decide: bool
    """Whether pages show forms, and a request may change anything."""

    @property
    def owner(self) -> str | None:
        return self.decider.owner

    @property
    def header(self) -> str:
        """A visitor from a terminal, as a portal is told of it."""
        return json.dumps([self.decider.by, self.may_decide])

    @classmethod
    def of_header(cls, value: str) -> Self:
        """Raises ValueError."""
        by, may_decide = json.loads(value)
        return cls(Decider(str(by)), may_decide is True)
