# /// stoilo-case
# idea = "queued signals"
# run = "probe"
# stopped_by = "kernel"
# syscall = "rt_tgsigqueueinfo"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(297, 1, 1, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
