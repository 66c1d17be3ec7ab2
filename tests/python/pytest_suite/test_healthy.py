"""What looks like a leak to who only compares two numbers, and is none."""

import threading
import unittest

import pytest
import torch

pytestmark = pytest.mark.limit_gpu_leaks("64 KiB")

LATEST = {}


@pytest.mark.parametrize("n", range(14))
def test_computes(batch, n):
    assert (batch @ batch.T).shape == (64, 64)


def test_uses_the_model_of_the_session(model, batch):
    assert model(batch).shape == batch.shape


def test_uses_the_table_of_the_module(table):
    assert table.numel() == 8 << 20


def test_asks_for_a_fixture_while_it_runs(request):
    assert request.getfixturevalue("table").is_cuda


def test_has_a_fixture_with_a_teardown(scratch):
    scratch.append(torch.ones(1 << 20, dtype=torch.uint8, device="cuda"))


def test_replaces_what_the_module_keeps():
    LATEST["batch"] = torch.zeros(2 << 20, dtype=torch.uint8, device="cuda")


def test_trains():
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 256, device="cuda")).square().mean().backward()
        optimizer.step()


def test_allocates_on_a_thread():
    def work():
        torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_uses_a_stream_of_its_own():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        held = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    held.record_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()


class TestOfAClass:
    @pytest.fixture(autouse=True)
    def prepare(self):
        self.prepared = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")

    def test_keeps_on_itself(self):
        self.kept = self.prepared + 1


class TestOfUnittest(unittest.TestCase):
    def setUp(self):
        self.prepared = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")

    def test_keeps_on_itself(self):
        self.kept = self.prepared + 1


@pytest.mark.skip
def test_is_skipped():
    pass


@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail():
    LATEST["failed"] = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    assert not LATEST
