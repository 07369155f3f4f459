# /// stoilo-case
# idea = "odd memory calls"
# run = "probe"
# stopped_by = "kernel"
# syscall = "move_pages"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(279, 0, 0, None, None, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
