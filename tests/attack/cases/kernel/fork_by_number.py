# /// stoilo-case
# idea = "new process"
# run = "probe"
# stopped_by = "kernel"
# syscall = "fork"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
child = libc.syscall(57)
if child == 0:
    os._exit(0)
if child > 0:
    print("REACHED")
