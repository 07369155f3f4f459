# /// stoilo-case
# idea = "new process"
# run = "probe"
# stopped_by = "kernel"
# error = "AssertionError"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(435, None, 0)
assert ctypes.get_errno() != errno.ENOSYS, "the jail says that there is no clone3"
print("REACHED")
