"""`python -m stoilo` is the `stoilo` command."""

import sys

from stoilo.cli.main import main

sys.exit(main())
