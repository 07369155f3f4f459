# /// stoilo-case
# idea = "futex operations"
# run = "probe"
# stopped_by = "kernel"
# syscall = "futex_waitv"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(449, None, 0, 0, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
