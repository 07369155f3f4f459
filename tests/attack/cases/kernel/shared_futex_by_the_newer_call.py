# /// stoilo-case
# idea = "shared futex"
# run = "probe"
# stopped_by = "kernel"
# goal = "inside"
# preload = ["ctypes"]
# control = "host"
# ///
# futex_wake(2) of Linux 6.7 has no word for private in its place of old.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
word = ctypes.c_uint32(0)
FUTEX2_SIZE_U32 = 2
if libc.syscall(454, ctypes.byref(word), 1, 1, FUTEX2_SIZE_U32) >= 0:
    print("REACHED")
