# /// stoilo-case
# idea = "shared futex"
# run = "probe"
# stopped_by = "kernel"
# syscall = "futex"
# goal = "inside"
# preload = ["ctypes"]
# ///
# The same, and only those who wait for a bit: a message.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
word = ctypes.cast(libc.getpid, ctypes.c_void_p).value & ~3
FUTEX_WAKE_BITSET = 10
if libc.syscall(202, ctypes.c_void_p(word), FUTEX_WAKE_BITSET, 1, None, None, 4) >= 0:
    print("REACHED")
