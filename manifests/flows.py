"""Where what came from one upstream may not go."""

from collections.abc import Collection
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field, Strict

from manifests.json_value import Json
from manifests.section import Section

NETWORK: Final = "network"
"""What `portal.fetch` reaches, as rules name it."""

ANY: Final = "*"


def _listed(value: Json) -> Json:
    return [value] if isinstance(value, str) else value


Ends: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
    Strict(False),
    BeforeValidator(_listed),
    Field(min_length=1, max_length=1000),
]


class FlowRule(Section):
    """Once a script, or one before it in its session, has sent a call to one of `from`, calls to `not_to` are refused.

    Names are those of upstreams, `network` for portal.fetch, or * for all that are not under from. What a script
    leaves in files or tells the model is beyond it.
    """

    from_: Ends = Field(alias="from", description="Upstreams from which something came; one, or a list.")
    not_to: Ends = Field(
        description="Where it may not go: upstreams, or network for portal.fetch; one, or a list."
    )

    def forbids(self, source: str, destination: str) -> bool:
        """Whether what came from `source` may not go to `destination`, both as the manifest names them."""
        if source == destination:
            return source in self.from_ and source in self.not_to
        return _has(self.from_, source) and (destination in self.not_to or self._means_any(destination))

    def _means_any(self, destination: str) -> bool:
        return ANY in self.not_to and destination not in self.from_


def _has(ends: Collection[str], name: str) -> bool:
    return name in ends or ANY in ends
