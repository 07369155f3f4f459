"""What the verifier leaves out of python-tuf is gone, and unknown keys are refused."""

import subprocess
import sys

from stoilo.executor.verifier.tuf_client import LEFT_OUT

PROBE = """
import sys
import stoilo.executor.verifier.tuf_client
from securesystemslib.signer import KEY_FOR_TYPE_AND_SCHEME, Key, SSlibKey
kinds = set(KEY_FOR_TYPE_AND_SCHEME.values())
print(kinds == {SSlibKey})
try:
    Key.from_dict("id", {"keytype": "eddsa", "scheme": "pgp+eddsa-ed25519", "keyval": {}})
except ValueError:
    print("refused")
print(not set(stoilo.executor.verifier.tuf_client.LEFT_OUT) & set(sys.modules))
from tuf.ngclient.updater import Updater
print(Updater.__name__)
"""


def test_keys_of_what_is_left_out_are_unknown():
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "refused", "True", "Updater"]


def test_every_left_out_module_is_one_of_the_client():
    assert all(name.startswith(("tuf.", "securesystemslib.")) for name in LEFT_OUT)
