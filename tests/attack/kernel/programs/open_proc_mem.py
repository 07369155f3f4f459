# expect: user_error language PermissionError
open("/proc/self/mem", "rb").close()
print("REACHED")
