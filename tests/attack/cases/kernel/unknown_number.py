# /// stoilo-case
# idea = "unknown number"
# run = "probe"
# stopped_by = "kernel"
# syscall = "number 2000"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(2000)
if ctypes.get_errno() == errno.ENOSYS:  # the kernel itself was asked
    print("REACHED")
