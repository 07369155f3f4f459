# /// stoilo-case
# idea = "pidfd"
# run = "probe"
# stopped_by = "kernel"
# syscall = "pidfd_send_signal"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(424, -1, 0, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
