# expect: user_error language PermissionError
import os

os.listdir("/")
print("REACHED")
