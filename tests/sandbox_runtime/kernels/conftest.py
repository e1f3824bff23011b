"""The sandbox of each kernel: a test that uses it runs once for each."""

import pytest

from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from sandbox_runtime.sandbox import Sandbox
from tests.one_sandbox import OneSandbox


@pytest.fixture(scope="session", params=[PYTHON, JAVASCRIPT])
def kernel(request: pytest.FixtureRequest) -> KernelName:
    name: KernelName = request.param
    return name


@pytest.fixture(scope="session")
async def sandbox(one: OneSandbox, kernel: KernelName) -> Sandbox:
    return await one.opened(kernel)
