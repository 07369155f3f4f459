# /// stoilo-case
# idea = "descriptors by message"
# run = "probe"
# stopped_by = "kernel"
# syscall = "sendmsg"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(46, 4, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
