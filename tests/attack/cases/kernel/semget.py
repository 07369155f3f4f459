# /// stoilo-case
# idea = "System V IPC"
# run = "probe"
# stopped_by = "kernel"
# syscall = "semget"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(64, 0, 1, 0o1600)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
