# /// stoilo-case
# idea = "ptrace"
# run = "probe"
# stopped_by = "kernel"
# syscall = "ptrace"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(101, 0x4206, __import__('os').getppid(), 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
