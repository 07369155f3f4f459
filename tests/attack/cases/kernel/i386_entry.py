# /// stoilo-case
# idea = "executable memory"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# preload = ["ctypes", "mmap"]
# control = "host"
# ///
# int 0x80 enters the kernel by the 32-bit table; it needs a page to stand on.
import ctypes
import mmap

code = bytes.fromhex("b814000000 cd80 c3")  # mov eax, getpid; int 0x80; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
if call() > 0:
    print("REACHED")
