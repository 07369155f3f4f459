# /// stoilo-case
# idea = "processor state"
# run = "probe"
# stopped_by = "kernel"
# syscall = "arch_prctl"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(158, 0x1003, None)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
