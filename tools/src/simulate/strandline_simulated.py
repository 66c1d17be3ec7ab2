"""What a Python on a simulated GPU does without: cuDNN's attention and recurrent layers. PyTorch takes its own instead."""
import importlib.util
import os
import sys
import threading

# What would be undone if it went away.
KEPT = []
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class WithoutCudnn:
    """PyTorch does without cuDNN inside of this. It has one switch for all threads: the last one to leave turns it back."""

    def __init__(self, torch):
        self.torch = torch
        self.lock = threading.Lock()
        self.inside = 0
        self.enabled = False

    def __enter__(self):
        with self.lock:
            if self.inside == 0:
                self.enabled = self.torch._C._get_cudnn_enabled()
                self.torch._C._set_cudnn_enabled(False)
            self.inside += 1

    def __exit__(self, *raised):
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.torch._C._set_cudnn_enabled(self.enabled)


def register_recurrent_layers(torch):
    """Replaces recurrent layers on a GPU, whoever calls them (TorchScript does, too), by themselves without cuDNN."""
    library = torch.library.Library("aten", "IMPL")
    without_cudnn = WithoutCudnn(torch)
    # PyTorch's own in C++; `decompose` would take that in Python, which is made for compilers.
    composite = torch._C.DispatchKey.CompositeImplicitAutograd

    def register(operation):
        def computed(*arguments, **named):
            with without_cudnn:
                return operation._op_dk(composite, *arguments, **named)

        for key in ("AutogradCUDA", "CUDA"):
            library.impl(operation, computed, key)

    for layer in RECURRENT:
        for form in ("input", "data"):
            register(getattr(getattr(torch.ops.aten, layer), form))
    return library


def has_nvidias_cudnn():
    """Whether a package brought the real library, which does not start on a simulated GPU."""
    with open("/proc/self/maps") as maps:
        return "/nvidia/cudnn/lib/libcudnn" in maps.read()


def turn_off(torch):
    getattr(torch._C, "_set_sdp_use_cudnn", lambda _: None)(False)
    if has_nvidias_cudnn() or os.environ.get("TORCH_CUDNN_V8_API_DISABLED") == "1":
        torch._C._set_cudnn_enabled(False)
        return
    KEPT.append(register_recurrent_layers(torch))
    torch.nn.RNNBase.flatten_parameters = lambda self: None


class Finder:
    """Finds PyTorch as it would be found, and turns off what is not simulated when it has been imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(Finder)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            turn_off(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder)
