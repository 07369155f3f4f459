# /// stoilo-case
# idea = "memory shared by content"
# run = "probe"
# stopped_by = "kernel"
# syscall = "madvise"
# goal = "inside"
# preload = ["ctypes", "mmap"]
# control = "host"
# ///
# KSM merges equal pages of different processes: a side channel.
import ctypes
import mmap

page = mmap.mmap(-1, 4096)
libc = ctypes.CDLL(None, use_errno=True)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
if libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(4096), 12) == 0:
    print("REACHED")
