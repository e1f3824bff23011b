"""What one run of a script may use. The descriptions reach operators, as those in `manifests.models` do."""

from typing import Annotated

from pydantic import Field

from manifests.constraints import Seconds
from manifests.section import Section


class Limits(Section):
    """What one run of a script may use. All of it is enforced outside the sandbox."""

    wall_seconds: Seconds = Field(
        default=60.0,
        description=(
            "Seconds a run may take by the clock (default 60). A longer run is stopped and answers with "
            "its ledger. Covers waiting for upstreams; does not cover waiting for a free worker, "
            "parsing the script (at most 5 s) or checking it."
        ),
    )
    cpu_seconds: Seconds = Field(
        default=10.0,
        description=(
            "Seconds of computing a run may do (default 10). More stops it. Does not cover waiting for calls."
        ),
    )
    memory_mib: Annotated[int, Field(ge=32, le=1024)] = Field(
        default=256,
        description=(
            "MiB of memory a script may fill, Python itself included (default 256). Asking for more "
            "raises MemoryError in the script or stops it. Does not cover the portal's own memory."
        ),
    )
    tool_calls: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=200,
        description=(
            "Calls one run may make (default 200). The next one is refused; the script may go on without."
            " Counts calls that fail or are refused later, too."
        ),
    )
    parallel_calls: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=64,
        description=(
            "Calls of one run that may be under way at once (default 64). Others wait their turn; none is"
            " refused. Does not cover calls of other runs."
        ),
    )
    argument_bytes: Annotated[int, Field(ge=2, le=64 * 1024 * 1024)] = Field(
        default=1024 * 1024,
        description=(
            "Bytes of the arguments of one call, as JSON in UTF-8 (default 1048576, 1 MiB). A call with "
            "more is refused and not sent. Each value in them counts at least 8. All calls of a run that wait or are "
            "under way may hold 32 times as much."
        ),
    )
    outcome_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = Field(
        default=10 * 1024 * 1024,
        description=(
            "Bytes of what one call returns, as JSON in UTF-8 (default 10485760, 10 MiB). More is refused"
            " with an error in the script, not cut. The upstream has acted by then."
        ),
    )
    result_bytes: Annotated[int, Field(ge=2, le=256 * 1024 * 1024)] = Field(
        default=10 * 1024 * 1024,
        description=(
            "Bytes of a script's value and of what it emits, as JSON in UTF-8 (default 10485760, 10 MiB)."
            " Each value in it counts at least 32. More ends the run with an error. What the model sees of it is "
            "bound by server.output_tokens."
        ),
    )
    stdout_bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)] = Field(
        default=256 * 1024,
        description=(
            "Bytes of what a script prints, in UTF-8 (default 262144, 256 KiB). The rest is dropped, and "
            "the answer says so. Printing more never stops a run."
        ),
    )
