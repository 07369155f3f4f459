# expect: user_error language PermissionError
import os

os.stat("/etc/passwd")
print("REACHED")
