"""Run the signer: ``python -m stoilo.signer.process``."""

import sys

from stoilo.signer.process.listener import main

sys.exit(main())
