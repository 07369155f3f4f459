"""The program of the frozen verifier; the launcher starts it."""

import sys

from stoilo.executor.verifier.main import main

sys.exit(main())
