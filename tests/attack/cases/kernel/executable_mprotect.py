# /// stoilo-case
# idea = "executable memory"
# run = "probe"
# stopped_by = "kernel"
# error = "AssertionError"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
area = libc.mmap(None, 4096, 3, 0x22, -1, 0)
assert libc.mprotect(ctypes.c_void_p(area), 4096, 5) == 0
print("REACHED")
