# /// stoilo-case
# idea = "keyctl"
# run = "probe"
# stopped_by = "kernel"
# syscall = "keyctl"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(250, 0, -3, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
