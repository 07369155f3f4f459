# /// stoilo-case
# idea = "processor state"
# run = "probe"
# stopped_by = "kernel"
# syscall = "map_shadow_stack"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(453, 0, 0, 8)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
