# /// stoilo-case
# idea = "signals to others"
# run = "probe"
# stopped_by = "kernel"
# syscall = "rt_sigqueueinfo"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(129, 1, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
