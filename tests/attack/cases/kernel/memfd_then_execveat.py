# /// stoilo-case
# idea = "exec without a file"
# run = "probe"
# stopped_by = "kernel"
# syscall = "memfd_create"
# preload = ["ctypes"]
# ///
import ctypes
import os

script = f"#!/bin/sh\necho made > {MARK}\n".encode()
libc = ctypes.CDLL(None, use_errno=True)
descriptor = libc.syscall(319, b"x", 0)
assert descriptor >= 0
os.write(descriptor, script)
path = f"/proc/self/fd/{descriptor}".encode()
arguments = (ctypes.c_char_p * 2)(b"x", None)
libc.syscall(322, descriptor, b"", arguments, None, 0x1000)
libc.syscall(59, path, arguments, None)
