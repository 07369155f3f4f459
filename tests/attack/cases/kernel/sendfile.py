# /// stoilo-case
# idea = "files without open"
# run = "probe"
# stopped_by = "kernel"
# syscall = "sendfile"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(40, 1, 0, None, 1)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
