# /// stoilo-case
# idea = "foreign x32"
# run = "probe"
# stopped_by = "kernel"
# syscall = "of another architecture"
# goal = "inside"
# preload = ["ctypes"]
# ///
import ctypes

ctypes.CDLL(None).syscall(0x40000000 | 39)
print("REACHED")
