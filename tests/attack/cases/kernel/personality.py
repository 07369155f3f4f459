# /// stoilo-case
# idea = "personality"
# run = "probe"
# stopped_by = "kernel"
# syscall = "personality"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(135, 0xFFFFFFFF)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
