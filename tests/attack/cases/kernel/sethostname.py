# /// stoilo-case
# idea = "settings of the machine"
# run = "probe"
# stopped_by = "kernel"
# syscall = "sethostname"
# goal = "inside"
# preload = ["ctypes"]
# control = "root"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(170, None, -1)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
