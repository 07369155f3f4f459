# /// stoilo-case
# idea = "init module"
# run = "probe"
# stopped_by = "kernel"
# syscall = "init_module"
# goal = "inside"
# control = "host"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(175, None, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
