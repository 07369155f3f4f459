# expect: killed kernel modify_ldt
# preload: ctypes
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(154, 0, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
