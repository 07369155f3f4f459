# expect: killed kernel kill
import os

os.kill(os.getpid(), 0)
print("REACHED")
