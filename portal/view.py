"""The portal as callers have it who are bound to one profile, or to none."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from manifests.manifest import Manifest
from portal.authority import Authority, CallRates
from portal.catalog import Catalog
from portal.check.checker import Checker, open_checker
from portal.docs_search import DocsSearch
from portal.execution import Execution
from portal.observed.observations import Observations

_PREFIX = "mcp-code-portal-"


def stub_folder() -> Path:
    """A new folder, owner-only. What portals left that were killed is removed on the way."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not _lives(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is somebody else's
    return True


@dataclass(frozen=True)
class View:
    """What they may do, find and run. Nothing of it knows what other views have."""

    manifest: Manifest
    authority: Authority
    catalog: Catalog
    docs_search: DocsSearch
    execution: Execution


@dataclass(frozen=True)
class Shelf:
    """The part of a view that is there before any upstream is: stubs of its own, and who checks against them."""

    authority: Authority
    catalog: Catalog
    checker: Checker | None


@asynccontextmanager
async def open_shelf(
    manifest: Manifest, rates: CallRates, observations: Observations
) -> AsyncIterator[Shelf]:
    """Make ready what a view shows. `rates` are those of all views: a budget of all is spent by all."""
    settings = manifest.portal.server
    async with AsyncExitStack() as stack:
        stubs = stub_folder()
        stack.callback(shutil.rmtree, stubs, ignore_errors=True)
        checker = None
        if settings.check != "off":
            checker = await stack.enter_async_context(open_checker(stubs, repairs=settings.repairs))
        authority = Authority(manifest, rates)
        yield Shelf(authority, Catalog(authority, stubs, checker, observations), checker)
