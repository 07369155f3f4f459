# /// stoilo-case
# idea = "new ways to open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "fchmodat2"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(452, -100, b"/nonexistent", 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
