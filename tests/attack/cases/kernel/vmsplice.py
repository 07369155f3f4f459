# /// stoilo-case
# idea = "vmsplice"
# run = "probe"
# stopped_by = "kernel"
# syscall = "vmsplice"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(278, 1, None, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
