# /// stoilo-case
# idea = "reboot"
# run = "probe"
# stopped_by = "kernel"
# syscall = "reboot"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(169, 0, 0, 0, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
