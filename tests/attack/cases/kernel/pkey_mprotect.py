# /// stoilo-case
# idea = "executable memory"
# run = "probe"
# stopped_by = "kernel"
# syscall = "pkey_mprotect"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(329, None, 0, 0, -1)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
