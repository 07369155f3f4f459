# expect: killed kernel kill
import os

os.kill(os.getppid(), 0)
print("REACHED")
