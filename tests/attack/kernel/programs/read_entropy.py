# expect: user_error language *
import os

os.urandom(8)
print("REACHED")
