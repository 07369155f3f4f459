# /// stoilo-case
# idea = "keyrings"
# run = "probe"
# stopped_by = "kernel"
# syscall = "request_key"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(249, b"user", b"stoilo", None, -2)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
