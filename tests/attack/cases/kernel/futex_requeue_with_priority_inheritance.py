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
first, second = ctypes.c_uint32(0), ctypes.c_uint32(0)
FUTEX_CMP_REQUEUE_PI = 12
libc.syscall(202, ctypes.byref(first), FUTEX_CMP_REQUEUE_PI | 128, 1, 0, ctypes.byref(second), 0)
if ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
