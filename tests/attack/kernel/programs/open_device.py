# expect: user_error language PermissionError
open("/dev/zero", "rb").read(1)
print("REACHED")
