"""What one run is granted."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunGrants:
    """Nothing, unless the manifest says otherwise.

    `environment` is what the script sees in `os.environ`.
    """

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


NO_GRANTS = RunGrants()
