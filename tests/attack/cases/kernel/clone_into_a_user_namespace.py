# /// stoilo-case
# idea = "namespaces by clone"
# run = "probe"
# stopped_by = "kernel"
# syscall = "clone"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
child = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
if child > 0:
    print("REACHED")
