import collections
import threading

_thread_local = threading.local()


def get_memory_hooks():
    if not hasattr(_thread_local, "hooks"):
        _thread_local.hooks = collections.OrderedDict()
    return _thread_local.hooks


class MemoryHook:
    name = "MemoryHook"

    def __enter__(self):
        hooks = get_memory_hooks()
        if self.name in hooks:
            raise KeyError(f"memory hook {self.name} already exists")
        hooks[self.name] = self
        return self

    def __exit__(self, *_):
        del get_memory_hooks()[self.name]

    def malloc_preprocess(self, **kwargs):
        pass

    def malloc_postprocess(self, **kwargs):
        pass

    def free_preprocess(self, **kwargs):
        pass

    def free_postprocess(self, **kwargs):
        pass
