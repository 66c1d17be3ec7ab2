"""What a Python on a simulated GPU does without: cuDNN. PyTorch takes its own convolutions, norms, recurrent layers and attention instead."""
import importlib.util
import sys


class Finder:
    """Finds PyTorch as it would be found, and turns cuDNN off when it has been imported."""

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
            for switch in ("_set_cudnn_enabled", "_set_sdp_use_cudnn"):
                getattr(module._C, switch, lambda _: None)(False)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder)
