# expect: killed kernel write
# control: none
import os

os.write(0, b"x")
print("REACHED")
