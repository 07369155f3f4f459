# /// stoilo-case
# idea = "rename"
# run = "probe"
# stopped_by = "kernel"
# syscall = "rename"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(82, b"/nowhere", b"/x")
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
