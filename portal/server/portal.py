"""A running portal, as its server uses it."""

from dataclasses import dataclass, field

from portal.calls.questions import SamplingDepths
from portal.identity.accounts import Accounts
from portal.records.telemetry.instruments import NO_TELEMETRY, Telemetry
from portal.runs.execution import OpenSandbox
from portal.runs.service import Runs
from portal.server.callers import Languages
from portal.server.client_resources import ClientResources
from portal.server.rounds import Rounds
from portal.server.views import View, Views
from sandbox_runtime.build_guest import Baked
from upstreams.fleet import Fleet


@dataclass(frozen=True)
class Portal(View):
    """A running portal, for any transport or command.

    It is also the view of callers without a profile (other than `open_portal`'s `profile`).
    """

    views: Views
    fleet: Fleet
    sandbox: OpenSandbox
    baked: Baked | None
    """The packages of the operator's own component, if there is one."""
    rounds: Rounds
    runs: Runs
    accounts: Accounts
    resources: ClientResources
    telemetry: Telemetry = NO_TELEMETRY
    languages: Languages = field(default_factory=Languages)
    sampling_depths: SamplingDepths = field(default_factory=SamplingDepths)
