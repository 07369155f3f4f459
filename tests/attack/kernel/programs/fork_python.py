# expect: killed kernel clone
import os

if os.fork() == 0:
    os._exit(0)
os.wait()
print("REACHED")
