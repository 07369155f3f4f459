# /// stoilo-case
# idea = "mkdir"
# run = "probe"
# stopped_by = "kernel"
# syscall = "mkdir"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(83, b"/nowhere/x", 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
