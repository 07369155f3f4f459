# expect: killed kernel rt_sigqueueinfo
# preload: ctypes
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(129, 1, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
