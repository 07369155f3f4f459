# expect: killed kernel *
import os

if os.system("true") == 0:
    print("REACHED")
