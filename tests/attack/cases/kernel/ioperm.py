# /// stoilo-case
# idea = "ioperm"
# run = "probe"
# stopped_by = "kernel"
# syscall = "ioperm"
# goal = "inside"
# control = "host"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(173, 70000, 1, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
