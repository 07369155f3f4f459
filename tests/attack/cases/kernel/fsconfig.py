# /// stoilo-case
# idea = "configured mounts"
# run = "probe"
# stopped_by = "kernel"
# syscall = "fsconfig"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(431, -1, 0, None, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
