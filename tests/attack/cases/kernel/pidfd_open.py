# /// stoilo-case
# idea = "pidfd"
# run = "probe"
# stopped_by = "kernel"
# syscall = "pidfd_open"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(434, 1, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
