# /// stoilo-case
# idea = "splice"
# run = "probe"
# stopped_by = "kernel"
# syscall = "splice"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(275, 0, None, 1, None, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
