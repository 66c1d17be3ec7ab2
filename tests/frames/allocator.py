"""PyTorch's real caching allocator in any Python: libc10_cuda.so through ctypes, without torch itself.

Its member functions are found in the library's symbol table; they are not exported.
"""

import ctypes
import struct

MEMBER = "_ZN3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocator"
ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
INIT = MEMBER + "4initEi"
RAW_ALLOC = MEMBER + "9raw_allocEm"
RAW_DELETE = MEMBER + "10raw_deleteEPv"
ATTACH = "_ZN3c104cuda6detail21init_p2p_access_cacheEl"


def symbols(path, wanted):
    with open(path, "rb") as f:
        data = f.read()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    found = {}
    for section in sections:
        if section[1] != 2:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            end = data.index(b"\0", names + name)
            text = data[names + name : end].decode()
            if text in wanted:
                found[text] = value
    return found


class Allocator:
    """`held`: whether the GIL is held while the recorder attaches, as it is in torch from 2.11 on."""

    def __init__(self, folder, held=True):
        ctypes.CDLL(folder + "/libc10.so")
        library = ctypes.CDLL(folder + "/libc10_cuda.so")
        places = symbols(folder + "/libc10_cuda.so", {ALLOCATOR, INIT, RAW_ALLOC, RAW_DELETE})
        pointer = ctypes.c_void_p.in_dll(library, ALLOCATOR)
        base = ctypes.addressof(pointer) - places[ALLOCATOR]
        this = pointer.value
        size, address, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
        ctypes.CFUNCTYPE(None, address, number)(base + places[INIT])(this, 1)
        alloc = ctypes.CFUNCTYPE(address, address, size)(base + places[RAW_ALLOC])
        delete = ctypes.CFUNCTYPE(None, address, address)(base + places[RAW_DELETE])
        # By the global scope, as torch's own libraries reach it: the recorder's function where there is one.
        everything = (ctypes.PyDLL if held else ctypes.CDLL)(None)
        getattr(everything, ATTACH, lambda _: None)(ctypes.c_long(1))
        self.this, self.alloc, self.delete = this, alloc, delete
