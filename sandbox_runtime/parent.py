"""A worker never outlives the process it serves."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent ends, where it can (Linux).

    The signal comes when the parent's thread that started this process ends, so that must be a lasting one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not has_parent(parent):
        os._exit(0)  # it ended before the line above


def has_parent(parent: int) -> bool:
    """Whether the parent still lives; the worker asks now and then where the system does not tell."""
    return os.getppid() == parent
