# /// stoilo-case
# idea = "ptrace"
# run = "probe"
# stopped_by = "kernel"
# syscall = "ptrace"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(101, 0, 0, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
