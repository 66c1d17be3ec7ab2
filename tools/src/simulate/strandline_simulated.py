"""What a Python on a simulated GPU does without: cuDNN's attention and recurrent layers. PyTorch takes its own instead."""
import importlib.util
import sys


def without_cudnn(torch, function):
    """`function`, as PyTorch computes it itself."""

    def computed(*arguments):
        enabled = torch._C._get_cudnn_enabled()
        torch._C._set_cudnn_enabled(False)
        try:
            return function(*arguments)
        finally:
            torch._C._set_cudnn_enabled(enabled)

    return computed


def has_nvidias_cudnn():
    """Whether a package brought the real library, which does not start on a simulated GPU."""
    with open("/proc/self/maps") as maps:
        return "/nvidia/cudnn/lib/libcudnn" in maps.read()


def turn_off(torch):
    getattr(torch._C, "_set_sdp_use_cudnn", lambda _: None)(False)
    if has_nvidias_cudnn():
        torch._C._set_cudnn_enabled(False)
        return
    for layer in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        setattr(torch._VF, layer, without_cudnn(torch, getattr(torch._VF, layer)))
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
