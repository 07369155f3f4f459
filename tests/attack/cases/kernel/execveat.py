# /// stoilo-case
# idea = "exec without a file"
# run = "probe"
# stopped_by = "kernel"
# syscall = "execveat"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(322, -100, b"/nonexistent", None, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
