"""The trusted base is small and listed: what the verifier and the zygote load is committed.

A new line in `trusted_base.txt` is a review of a module that every volunteer runs.
Regenerate with `python tests/invariants/test_trusted_base.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("trusted_base.txt")
PARTS = {
    "verifier": "stoilo.executor.verifier.main",
    "zygote": "stoilo.sandbox.process.zygote, stoilo.sandbox.process.task_job",
}
ALLOWED = frozenset(
    {
        "RestrictedPython",
        "pyseccomp",
        "cryptography",
        "_cffi_backend",  # cryptography's
        "tuf",
        "securesystemslib",
        "msgspec",
        "typing_extensions",  # msgspec's
        "numpy",
    }
)
PROBE = """
import sys
before = set(sys.modules)
import {modules}
names = {{name for name in set(sys.modules) - before}}
own = sorted(name for name in names if name.split(".")[0] == "stoilo")
outside = {{name.split(".")[0] for name in names}} - set(sys.stdlib_module_names) - {{"stoilo"}}
outside = sorted(name for name in outside if sys.modules[name].__spec__ is not None)
print("\\n".join(own))
print("--")
print("\\n".join(outside))
"""


def loaded(part):
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROBE.format(modules=PARTS[part])],
        capture_output=True,
        check=True,
        text=True,
    )
    own, _, outside = done.stdout.partition("--\n")
    return own.split(), outside.split()


def render():
    return "".join(
        f"[{part}]\n" + "".join(f"{name}\n" for name in loaded(part)[0])
        for part in PARTS
    )


def test_loaded_modules_are_the_committed_ones():
    assert render() == LIST.read_text()


@pytest.mark.parametrize("part", PARTS)
def test_third_party_is_what_the_design_allows(part):
    assert set(loaded(part)[1]) <= ALLOWED


def test_verifier_has_no_network_and_starts_no_program_of_others():
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-c"),
            "import stoilo.executor.verifier.main, sys; print(*sys.modules)",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    loaded_modules = set(done.stdout.split())
    assert "tuf.ngclient.updater" in loaded_modules
    # msgspec.toml imports it when it is called: a frozen verifier has nothing else.
    assert "tomllib" in loaded_modules
    unwanted = {"ssl", "http", "urllib3", "urllib.request", "asyncio", "email"}
    assert not loaded_modules & unwanted
    assert "securesystemslib.signer._gpg_signer" not in loaded_modules


def test_list_would_notice_the_server():
    assert "stoilo.server" not in LIST.read_text()
    assert "stoilo.client" not in LIST.read_text()


if __name__ == "__main__":
    LIST.write_text(render())
