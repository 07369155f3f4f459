# /// stoilo-case
# idea = "waiting for signals"
# run = "probe"
# stopped_by = "kernel"
# syscall = "rt_sigtimedwait"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(128, None, None, None, 8)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
