# /// stoilo-case
# idea = "new ways to open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "utimensat"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(280, -100, b"/nonexistent", None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
