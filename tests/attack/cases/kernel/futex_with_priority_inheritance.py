# /// stoilo-case
# idea = "futex operations"
# run = "probe"
# stopped_by = "kernel"
# syscall = "futex"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
word = ctypes.c_uint32(0)
FUTEX_LOCK_PI = 6
if libc.syscall(202, ctypes.byref(word), FUTEX_LOCK_PI | 128, 0, None, None, 0) == 0:
    print("REACHED")
