# expect: user_error language PermissionError
open("/etc/passwd").read()
print("REACHED")
