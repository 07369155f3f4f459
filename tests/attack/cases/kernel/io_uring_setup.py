# /// stoilo-case
# idea = "io uring setup"
# run = "probe"
# stopped_by = "kernel"
# syscall = "io_uring_setup"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(425, 1, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
