# expect: user_error language PermissionError
import os

open("stoilo-attack.txt", "w").close()
os.unlink("stoilo-attack.txt")
print("REACHED")
