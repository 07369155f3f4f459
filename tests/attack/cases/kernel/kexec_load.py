# /// stoilo-case
# idea = "kexec load"
# run = "probe"
# stopped_by = "kernel"
# syscall = "kexec_load"
# goal = "inside"
# control = "host"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(246, 0, 0, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
