# /// stoilo-case
# idea = "landlock restrict self"
# run = "probe"
# stopped_by = "kernel"
# syscall = "landlock_restrict_self"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(446, -1, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
