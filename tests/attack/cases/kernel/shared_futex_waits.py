# /// stoilo-case
# idea = "shared futex"
# run = "probe"
# stopped_by = "kernel"
# syscall = "futex"
# goal = "inside"
# preload = ["ctypes"]
# ///
# Until another run wakes it: what threads need, and single runs do not.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
class Span(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


word, span = ctypes.c_uint32(0), Span(0, 1)
FUTEX_WAIT = 0
arguments = (ctypes.byref(word), FUTEX_WAIT, 0, ctypes.byref(span), None, 0)
if libc.syscall(202, *arguments) < 0 and ctypes.get_errno() == errno.ETIMEDOUT:
    print("REACHED")
