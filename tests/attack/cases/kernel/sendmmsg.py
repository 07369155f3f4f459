# /// stoilo-case
# idea = "sendmmsg"
# run = "probe"
# stopped_by = "kernel"
# syscall = "sendmmsg"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(307, 1, None, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
