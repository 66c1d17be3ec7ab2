"""CUDA is called before PyTorch is loaded: PyTorch's objects are destroyed before what was registered at that call is called."""

import ctypes
import glob
import sysconfig

cudart = ctypes.CDLL(sorted(glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib/libcudart.so.*"))[0], mode=ctypes.RTLD_GLOBAL)
p = ctypes.c_void_p()
print(ctypes.CDLL(None).cudaMalloc(ctypes.byref(p), ctypes.c_size_t(12345)))

import torch  # noqa: E402

torch.nn.Linear(10, 10).cuda()(torch.ones(2, 10, device="cuda")).sum().backward()
print("trained")
