# /// stoilo-case
# idea = "memory of others"
# run = "probe"
# stopped_by = "kernel"
# syscall = "get_robust_list"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(274, 0, None, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
