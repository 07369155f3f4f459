# /// stoilo-case
# idea = "signalfd4"
# run = "probe"
# stopped_by = "kernel"
# syscall = "signalfd4"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(289, -1, None, 8, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
