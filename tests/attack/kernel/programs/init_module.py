# expect: killed kernel init_module
# preload: ctypes
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(175, None, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
