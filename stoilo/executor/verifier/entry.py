"""The program of the frozen verifier; the launcher starts it."""

import gc
import sys

gc.disable()  # `main` collects once, when all is imported

from stoilo.executor.verifier.main import main  # noqa: E402 - said above

sys.exit(main())
