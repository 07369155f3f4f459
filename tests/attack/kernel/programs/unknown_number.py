# expect: killed kernel number 2000
# preload: ctypes
import ctypes

ctypes.CDLL(None).syscall(2000)
print("REACHED")
