"""Six leaks of different kinds, each beside a test that does nearly the same and keeps nothing. A line with LEAK allocates what that test keeps."""

import functools
import gc

import pytest
import torch

pytestmark = pytest.mark.limit_gpu_leaks("64 KiB", warmup=2)

HISTORY = []
LOSSES = []
FAILURES = []
CALLBACKS = []
calls = iter(range(1 << 30))


def block():
    return torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")


def test_a_list_of_the_module_keeps():
    HISTORY.append(torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"))  # LEAK of test_a_list_of_the_module_keeps


def test_a_list_of_the_module_is_emptied():
    HISTORY.append(block())
    HISTORY.pop()


@functools.lru_cache(maxsize=None)
def looked_up(key):
    return torch.full((1 << 18,), float(key), device="cuda")  # LEAK of test_a_cache_without_bound_keeps


def test_a_cache_without_bound_keeps():
    looked_up(next(calls))


@functools.lru_cache(maxsize=1)
def looked_up_again(key):
    return torch.full((1 << 18,), float(key), device="cuda")


def test_a_cache_with_a_bound_replaces():
    looked_up_again(next(calls))


def test_a_cache_is_filled_once():
    looked_up_again(-1)


def fails():
    activation = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")  # LEAK of test_an_exception_keeps_its_frames
    raise ValueError(activation.shape)


def test_an_exception_keeps_its_frames():
    try:
        fails()
    except ValueError as e:
        FAILURES.append(e)


def test_an_exception_without_its_frames():
    try:
        fails()
    except ValueError as e:
        FAILURES.append(e.with_traceback(None))


class Recorder:
    def __init__(self):
        self.seen = []

    def __call__(self, module, inputs, output):
        self.seen.append(output * 2)  # LEAK of test_a_hook_that_stays_keeps


@pytest.fixture(scope="module")
def layer():
    return torch.nn.Linear(512, 1024).cuda()


def test_a_hook_that_stays_keeps(layer, batch):
    layer.register_forward_hook(Recorder())
    layer(batch)


def test_a_hook_that_is_removed(model, batch):
    handle = model[2].register_forward_hook(Recorder())
    model(batch)
    handle.remove()


def test_losses_keep_their_graphs():
    weight = torch.ones(1 << 18, device="cuda", requires_grad=True)
    LOSSES.append(weight.exp().mean())  # LEAK of test_losses_keep_their_graphs


def test_losses_without_their_graphs():
    weight = torch.ones(1 << 18, device="cuda", requires_grad=True)
    LOSSES.append(weight.exp().mean().item())


def test_a_closure_that_is_registered_keeps():
    buffer = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")  # LEAK of test_a_closure_that_is_registered_keeps
    CALLBACKS.append(lambda: buffer.sum())


def test_a_closure_that_is_called_and_gone():
    buffer = block()
    (lambda: buffer.sum())()


def test_a_cycle_that_only_the_collector_frees():
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        cycle = [block()]
        cycle.append(cycle)
    finally:
        if was_enabled:
            gc.enable()
