"""Imports inside a function: an installed package need not be imported here before."""

import subprocess
import sys

PROGRAM = """\
import sys
import stoilo
from stoilo.client.capture import capture_task

def mean(call):
    import numpy as np
    return np.mean(call["data"])

assert "numpy" not in sys.modules
print("import numpy" in capture_task(mean, {"data": [1]}).task_module)
"""


def test_installed_package_not_yet_imported_is_no_module_of_yours(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
