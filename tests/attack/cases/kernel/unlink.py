# /// stoilo-case
# idea = "unlink"
# run = "probe"
# stopped_by = "kernel"
# syscall = "unlink"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(87, b"/nowhere")
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
