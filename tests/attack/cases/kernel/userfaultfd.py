# /// stoilo-case
# idea = "userfaultfd"
# run = "probe"
# stopped_by = "kernel"
# syscall = "userfaultfd"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(323, 1)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
