# /// stoilo-case
# idea = "setresuid"
# run = "probe"
# stopped_by = "kernel"
# syscall = "setresuid"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(117, -1, -1, -1)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
