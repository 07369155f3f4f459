"""`stoilo demo`: passes as shipped; each sabotage makes it fail, with exit code not 0.

The command line has no switch for any of this: each saboteur is a program of its own that
calls the demo with one part replaced.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SABOTEUR = Path(__file__).with_name("sabotaged_demo.py")
TIMEOUT_S = 800


def run(*command):
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, timeout=TIMEOUT_S, check=False
    )
    report = json.loads(done.stdout.splitlines()[-1])
    print(*(claim for claim in report["claims"] if not claim["holds"]), sep="\n")
    return done.returncode, [
        claim["title"] for claim in report["claims"] if not claim["holds"]
    ]


@pytest.mark.timeout(900)
def test_demo_as_shipped_holds_every_claim():
    assert run("-m", "stoilo", "demo", "--json") == (0, [])


NO_COSIGNATURE = "a volunteer refuses the same admissions without that cosignature"
UNEXPLAINED = "a monitor from outside finds every admission explained"
# Sabotages that do not touch each other share a run of the demo; what each of them breaks is
# told here, and nothing else may break.
BESIDE_EACH_OTHER = [
    {
        "wrong_integrand": {"ten parts of ∫ x·sin x over [0, π] add up to π"},
        "wrong_solution": {
            "numpy solution accepted by the researcher's own validators"
        },
        "items_differ": {"map kept every item across the crash"},
        "server_immortal": {
            "server killed with SIGKILL and restarted without losing a task"
        },
        "no_exception": {"an exception comes back as UserError, not as a crash"},
        "always_agree": {"copies that never agree end as SystemError with a code"},
        "no_witness": {
            "every admission carries the cosignature of a witness with its own key",
            NO_COSIGNATURE,  # there is none to leave out
        },
        "records_withheld": {UNEXPLAINED},
    },
    {
        "cheat_off": {"the cheating volunteer is outvoted"},
        "proof_flipped": {"every task has its own admission in the signed log"},
        "seccomp_widened": {
            "a program that opens a socket dies in the jail, the call named"
        },
        "benign_instead": {
            "gate refuses dunder walk",
            "gate refuses hidden text",
            "gate refuses read files",
        },
        "log_bitflip": {"the whole log verifies, beside the running server"},
        "cosignature_kept": {NO_COSIGNATURE},
        "split_view": {
            "every checkpoint that a volunteer saw is one of this log",
            UNEXPLAINED,  # no log with an alarm is
        },
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("claims", BESIDE_EACH_OTHER, ids="+".join)
def test_sabotaged_demo_fails_at_these_claims(claims):
    code, broken = run(str(SABOTEUR), *claims)
    assert code != 0
    assert set().union(*claims.values()) == {*broken}
