# expect: killed kernel perf_event_open
# preload: ctypes
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(298, None, 0, -1, -1, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
