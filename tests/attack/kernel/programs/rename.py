# expect: killed kernel rename
# preload: ctypes
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(82, b"/nowhere", b"/x")
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
