# expect: user_error language PermissionError
# preload: mmap
import mmap

mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
print("REACHED")
