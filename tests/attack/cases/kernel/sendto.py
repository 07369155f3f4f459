# /// stoilo-case
# idea = "descriptors by message"
# run = "probe"
# stopped_by = "kernel"
# syscall = "sendto"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(44, 0, None, 0, 0, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
