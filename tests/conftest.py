"""What holds for every test: random numbers depend on the test only, not on those before it."""

import zlib

import numpy as np
import pytest

from tinyfn import Tensor


@pytest.fixture(autouse=True)
def numbers_of_its_own(request, monkeypatch):
    """Tensor's numbers and a module's RNG start anew, whatever the order and the workers."""
    seed = zlib.crc32(request.node.nodeid.encode())
    Tensor.manual_seed(seed)
    if hasattr(request.module, "RNG"):
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(seed))
