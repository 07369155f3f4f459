# /// stoilo-case
# idea = "kernel modules"
# run = "probe"
# stopped_by = "kernel"
# syscall = "finit_module"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(313, -1, b"", 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
