"""Staging inside the hardened unit: hosts can still read what it stages."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import errno, hashlib, os, stat, sys
from pathlib import Path
import pyseccomp
from stoilo.server.engines.workunits import WorkunitFile
from stoilo.server.engines.stock.staging import Stage
os.umask(0o077)
rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
for name, place in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2)):
    rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name,
        pyseccomp.Arg(place, pyseccomp.MASKED_EQ, 0o2000, 0o2000))
if sys.argv[2] == "hardened":
    rules.load()
stage = Stage(Path(sys.argv[1]), 1024, b"secret")
file = WorkunitFile("x", hashlib.sha256(b"x").hexdigest(), b"x")
path = stage.path_of(stage.add([file])[file.digest].name)
print(oct(path.parent.stat().st_mode & 0o7777), oct(path.stat().st_mode & 0o7777))
"""


@pytest.mark.parametrize(("unit", "folder"), [("hardened", "0o775"), ("no", "0o2775")])
def test_new_folder_is_open_to_the_web_server(tmp_path, unit, folder):
    words = [sys.executable, "-c", CHILD, str(tmp_path), unit]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == ([folder, "0o644"], "")
