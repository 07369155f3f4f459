"""`python -m stoilo.executor.volunteer`: the volunteer process."""

import sys

from stoilo.executor.volunteer.main import main

sys.exit(main())
