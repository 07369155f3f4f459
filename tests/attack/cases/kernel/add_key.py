# /// stoilo-case
# idea = "add key"
# run = "probe"
# stopped_by = "kernel"
# syscall = "add_key"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(248, b"user", b"k", b"v", 1, -2)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
