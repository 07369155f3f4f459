# /// stoilo-case
# idea = "settings of the machine"
# run = "probe"
# stopped_by = "kernel"
# syscall = "quotactl"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(179, 0, None, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
