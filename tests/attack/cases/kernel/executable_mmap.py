# /// stoilo-case
# idea = "executable memory"
# run = "probe"
# stopped_by = "kernel"
# error = "PermissionError"
# goal = "inside"
# preload = ["mmap"]
# ///
import mmap

mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
print("REACHED")
