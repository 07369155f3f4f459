# /// stoilo-case
# idea = "configured mounts"
# run = "probe"
# stopped_by = "kernel"
# syscall = "move_mount"
# goal = "inside"
# preload = ["ctypes"]
# control = "root"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(429, -1, None, -1, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
