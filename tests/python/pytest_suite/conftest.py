"""What the tests of this suite share: fixtures that live between tests, which are no leaks."""

import pytest
import torch


@pytest.fixture(scope="session")
def model():
    """A model that the first test which asks for it makes, and that the whole session keeps."""
    return torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).cuda()


@pytest.fixture(scope="module")
def table():
    """One for each module: 8 MiB, given back with the last test of the module."""
    return torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")


@pytest.fixture
def batch():
    """A test's own."""
    return torch.randn(64, 512, device="cuda")


@pytest.fixture
def scratch():
    """A test's own, given back by its teardown."""
    held = [torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")]
    yield held
    held.clear()
