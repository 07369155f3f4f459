# /// stoilo-case
# idea = "settings of the process"
# run = "probe"
# stopped_by = "kernel"
# syscall = "umask"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(95, 18)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
