from stoilo.core.codec import skeleton
from stoilo.core.types import RunLimits, RunStatus
from stoilo.policies.levels import load_level
from stoilo.sandbox.kernel.filters import Denied
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe, read_probe
from stoilo.sandbox.suite.runner import SuiteJails

LIMITS = RunLimits(cpu_s=5, wall_s=10, memory_bytes=256 << 20)


def test_jail_is_made_once_for_each_job_level_and_mode():
    with SuiteJails([load_level("pure")], ()) as jails:
        first = jails.get(PROBE_JOB, "pure")
        assert jails.get(PROBE_JOB, "pure") is first
        assert jails.get(PROBE_JOB, "pure", Denied.ERRNO) is not first


def test_library_that_a_level_lacks_is_not_loaded_for_its_probes():
    with SuiteJails([load_level("pure")], ("wave", "numpy.fft")) as jails:
        source = "import wave, sys\nprint('numpy' in sys.modules)\n"
        request = encode_probe(source, ("wave",))
        outcome = read_probe(jails.get(PROBE_JOB, "pure").run(request, LIMITS))
    assert outcome.status is RunStatus.OK, outcome
    assert skeleton.decode(outcome.value) == "False\n"
