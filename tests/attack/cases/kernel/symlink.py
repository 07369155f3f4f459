# /// stoilo-case
# idea = "symlink"
# run = "probe"
# stopped_by = "kernel"
# syscall = "symlink"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(88, b"/nowhere", b"/nowhere/x")
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
