# /// stoilo-case
# idea = "reach of the zygote"
# run = "probe"
# stopped_by = "kernel"
# preload = ["ctypes"]
# goal = "inside"
# ///
# A parent's limits are read, and could be set.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
limits = (ctypes.c_uint64 * 2)()
if libc.syscall(302, os.getppid(), 7, None, ctypes.byref(limits)) == 0:
    print("REACHED")
