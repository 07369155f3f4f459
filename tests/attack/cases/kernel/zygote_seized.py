# /// stoilo-case
# idea = "reach of the zygote"
# run = "probe"
# stopped_by = "kernel"
# syscall = "ptrace"
# preload = ["ctypes"]
# control = "host"
# goal = "inside"
# ///
# PTRACE_SEIZE stops nobody; the control lets go by ending.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(101, 0x4206, os.getppid(), None, None) == 0:
    print("REACHED")
