# /// stoilo-case
# idea = "seccomp"
# run = "probe"
# stopped_by = "kernel"
# syscall = "seccomp"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(317, 2, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
