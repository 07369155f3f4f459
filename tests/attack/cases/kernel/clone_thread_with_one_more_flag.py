# /// stoilo-case
# idea = "namespaces by clone"
# run = "probe"
# stopped_by = "kernel"
# syscall = "clone"
# goal = "inside"
# preload = ["ctypes"]
# ///
# The flags of a thread, and CLONE_UNTRACED: only the exact set is a thread.
import ctypes
import errno

libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(56, (0x3D0F00 | 0x00800000) & ~0x100, 0, 0, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
