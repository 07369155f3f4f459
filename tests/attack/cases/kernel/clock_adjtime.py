# /// stoilo-case
# idea = "the machine's clock"
# run = "probe"
# stopped_by = "kernel"
# syscall = "clock_adjtime"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(305, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
