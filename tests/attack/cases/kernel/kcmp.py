# /// stoilo-case
# idea = "memory of others"
# run = "probe"
# stopped_by = "kernel"
# syscall = "kcmp"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(312, 1, 1, 0, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
