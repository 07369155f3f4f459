# /// stoilo-case
# idea = "namespaces by clone"
# run = "probe"
# stopped_by = "kernel"
# syscall = "clone"
# goal = "inside"
# preload = ["ctypes"]
# ///
# A filter that compared the low half only would see the flags of a thread.
import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
flags = ctypes.c_ulong(0x3D0F00 & ~0x10100 | 1 << 40)
result = libc.syscall(56, flags, 0, 0, 0, 0)
if result >= 0 or ctypes.get_errno() not in {errno.ENOSYS, errno.EPERM}:
    print("REACHED")
