# /// stoilo-case
# idea = "mount API"
# run = "probe"
# stopped_by = "kernel"
# syscall = "mount_setattr"
# goal = "inside"
# preload = ["ctypes"]
# control = "root"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(442, -1, None, 0, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
