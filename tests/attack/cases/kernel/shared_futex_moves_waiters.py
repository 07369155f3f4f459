# /// stoilo-case
# idea = "shared futex"
# run = "probe"
# stopped_by = "kernel"
# syscall = "futex"
# goal = "inside"
# preload = ["ctypes"]
# ///
# Those who wait at one shared word are moved to another.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
words = (ctypes.c_uint32 * 2)()
FUTEX_REQUEUE = 3
arguments = (words, FUTEX_REQUEUE, 1, ctypes.c_long(1), ctypes.byref(words, 4), 0)
if libc.syscall(202, *arguments) >= 0:
    print("REACHED")
