# /// stoilo-case
# idea = "priorities"
# run = "probe"
# stopped_by = "kernel"
# syscall = "sched_setaffinity"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(203, 0, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
