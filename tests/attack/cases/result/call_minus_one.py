# /// stoilo-case
# idea = "an ending of its own choice"
# run = "probe"
# stopped_by = "kernel"
# code = "STO-S010"
# syscall = "number -1"
# goal = "inside"
# preload = ["ctypes"]
# ///
# A number that once meant "no call was denied": the run looked killed from outside.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(-1)
if ctypes.get_errno() == errno.ENOSYS:
    print("REACHED")
