# /// stoilo-case
# idea = "security modules"
# run = "probe"
# stopped_by = "kernel"
# syscall = "landlock_create_ruleset"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(444, None, 0, 1)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
