"""The process's first CUDA call is an allocation, and there is no torch: that call itself is part of the recording."""

import ctypes
import glob
import sysconfig

libraries = sysconfig.get_paths()["purelib"] + "/nvidia/*/lib/libcudart.so.*"
ctypes.CDLL(sorted(glob.glob(libraries))[0], mode=ctypes.RTLD_GLOBAL)
cudart = ctypes.CDLL(None)
p = ctypes.c_void_p()
print(cudart.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(12345)))
