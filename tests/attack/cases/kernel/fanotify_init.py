# /// stoilo-case
# idea = "fanotify init"
# run = "probe"
# stopped_by = "kernel"
# syscall = "fanotify_init"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(300, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
