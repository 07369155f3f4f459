# /// stoilo-case
# idea = "new ways to open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "openat2"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(437, -100, b"/", None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
