# /// stoilo-case
# idea = "reuse transfer"
# run = "probe"
# stopped_by = "kernel"
# error = "AssertionError"
# goal = "inside"
# control = "none"
# preload = ["ctypes"]
# ///
# sendmsg on the closed descriptor by which the listener left: nothing is behind it.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(46, 5, None, 0)
assert not (result == -1 and ctypes.get_errno() == errno.EBADF), "EBADF"
print("REACHED")
