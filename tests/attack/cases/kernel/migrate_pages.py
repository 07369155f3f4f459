# /// stoilo-case
# idea = "odd memory calls"
# run = "probe"
# stopped_by = "kernel"
# syscall = "migrate_pages"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(256, 0, 0, None, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
