# /// stoilo-case
# idea = "name to handle at"
# run = "probe"
# stopped_by = "kernel"
# syscall = "name_to_handle_at"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(303, -100, b"/", None, None, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
