# /// stoilo-case
# idea = "open by handle at"
# run = "probe"
# stopped_by = "kernel"
# syscall = "open_by_handle_at"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(304, -1, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
