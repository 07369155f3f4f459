# /// stoilo-case
# idea = "eventfd2"
# run = "probe"
# stopped_by = "kernel"
# syscall = "eventfd2"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(290, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
