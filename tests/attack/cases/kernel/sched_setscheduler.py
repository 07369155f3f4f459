# /// stoilo-case
# idea = "sched setscheduler"
# run = "probe"
# stopped_by = "kernel"
# syscall = "sched_setscheduler"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(144, 0, -1, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
