"""Makes this interpreter say something wrong about its own frames, then allocates as `program.py` does.

    liar.py FOLDER_OF_TORCH_LIB WORD=VALUE
"""

import ctypes
import runpy
import sys

folder, lie = sys.argv[1:]
word, value = (int(n, 0) for n in lie.split("="))
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(None), "_PyRuntime"))
ctypes.c_uint64.from_address(runtime + 8 * word).value = value
sys.argv = ["program.py", folder, "held", "plain"]
runpy.run_path(__file__.replace("liar.py", "program.py"), run_name="__main__")
