# /// stoilo-case
# idea = "epoll create1"
# run = "probe"
# stopped_by = "kernel"
# syscall = "epoll_create1"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(291, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
