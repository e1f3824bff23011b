"""How many files may be open at once: a stdio server takes four, and on many systems a process begins with 1,024.

The portal takes more where it may. The servers that it starts do not: a program that waits with `select` can only wait
for the first 1,024, which is why systems begin with so few.
"""

import resource
from typing import Final

ENOUGH: Final = 65_536

AT_START: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""How many this process might have open when it was started."""


def allow_enough() -> None:
    """Let this process have `ENOUGH` open, or as many as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
