"""The one name for "any JSON value"; `Any` appears nowhere else."""

from typing import Any, TypeAlias

Json: TypeAlias = Any
"""None, bool, int, float, str, list of Json, or dict of str to Json."""
