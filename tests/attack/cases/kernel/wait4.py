# /// stoilo-case
# idea = "wait4"
# run = "probe"
# stopped_by = "kernel"
# syscall = "wait4"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(61, -1, None, 1, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
