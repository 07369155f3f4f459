"""The program of every flavor: the zygote, and nothing else.

It takes no argument and reads no file of its own choice: what to prepare comes over the
control socket, which is descriptor 0. The volunteer's verifier starts it.
"""

import gc
import os
import sys

gc.disable()  # the zygote collects once, when all is imported
if len(sys.argv) > 1:
    os._exit(2)

from stoilo.sandbox.process.zygote import main  # noqa: E402 - after collecting has been stopped

main()
