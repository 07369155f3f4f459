"""Opens a log that another process writes; prints the code of the refusal."""

import sys
from pathlib import Path

from tests.support.faulty_log import LogKey
from stoilo.audit.log.sequencer import Sequencer
from stoilo.core.errors import StoiloError

key = LogKey("log.test/t")
try:
    with Sequencer.open(Path(sys.argv[1]), key.origin, key.sign) as log:
        log.append(b"intruder")
        print("opened")
except StoiloError as error:
    print(error.code)
