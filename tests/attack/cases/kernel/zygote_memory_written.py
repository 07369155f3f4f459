# /// stoilo-case
# idea = "reach of the zygote"
# run = "probe"
# stopped_by = "kernel"
# syscall = "process_vm_writev"
# preload = ["ctypes"]
# control = "host"
# goal = "inside"
# ///
# Nothing is written: no vector is given. To be allowed to is the goal.
import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(311, os.getppid(), None, 0, None, 0, 0) == 0:
    print("REACHED")
