# expect: killed kernel execve
import os
import sys

os.execv(sys.executable, [sys.executable, "-c", "print('REACHED')"])
