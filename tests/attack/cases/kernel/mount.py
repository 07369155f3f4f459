# /// stoilo-case
# idea = "mount API"
# run = "probe"
# stopped_by = "kernel"
# syscall = "mount"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(165, None, None, None, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
