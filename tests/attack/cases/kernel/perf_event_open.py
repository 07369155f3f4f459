# /// stoilo-case
# idea = "perf event open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "perf_event_open"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(298, None, 0, -1, -1, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
