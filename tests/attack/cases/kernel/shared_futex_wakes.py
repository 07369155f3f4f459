# /// stoilo-case
# idea = "shared futex"
# run = "probe"
# stopped_by = "kernel"
# syscall = "futex"
# goal = "inside"
# preload = ["ctypes"]
# ///
# A word in a library's file is the same for every run.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
word = ctypes.cast(libc.getpid, ctypes.c_void_p).value & ~3
FUTEX_WAKE = 1
if libc.syscall(202, ctypes.c_void_p(word), FUTEX_WAKE, 1, None, None, 0) >= 0:
    print("REACHED")
