# /// stoilo-case
# idea = "reach of the zygote"
# run = "probe"
# stopped_by = "kernel"
# syscall = "pidfd_open"
# preload = ["ctypes"]
# control = "host"
# goal = "inside"
# ///
# The channel to the supervisor is one of the parent's descriptors.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
parent = libc.syscall(434, os.getppid(), 0)
if parent >= 0 and libc.syscall(438, parent, 0, 0) >= 0:
    print("REACHED")
