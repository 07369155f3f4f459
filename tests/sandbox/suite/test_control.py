import pytest

from stoilo.core.errors import InternalError
from stoilo.policies.levels import load_level
from stoilo.sandbox.suite import control
from stoilo.sandbox.suite.case import parse_case
from stoilo.sandbox.suite.control import Controls
from stoilo.sandbox.suite.programs import Ground

HEADER = '# /// stoilo-case\n# idea = "x"\n# stopped_by = "gate"\n{}# ///\n'


@pytest.fixture(scope="module")
def controls():
    with Controls() as opened:
        yield opened


def run(controls, program, *keys):
    header = HEADER.format("".join(f"# {key}\n" for key in keys))
    with Ground.make() as ground:
        case = parse_case((header + program).encode(), "n")
        done = controls.run(case, ground, load_level("pure"))
        return done, ground.was_reached(done.output)


def test_task_is_called_with_canary_and_own_arguments(controls):
    program = "def run(k):\n    return open(k['canary']).read() * k['times']\n"
    assert run(controls, program, "kwargs = { times = 2 }")[1]


def test_probe_finds_its_places_as_globals(controls):
    assert run(controls, "open(MARK, 'w').close()\n", 'run = "probe"')[1]


def test_parent_of_a_result_case_gets_the_frame(controls):
    program = (
        "def run(k):\n    return [b'a', b'b']\n\ndef parent(f):\n    return f + b'c'\n"
    )
    done, _ = run(controls, program, 'run = "result"')
    assert done.output == "b'abc'\n"


@pytest.mark.parametrize("body", ["raise SystemExit", "return 1", "yield"])
def test_validator_that_a_careless_daemon_believes_has_reached(controls, body):
    program = f"def init(value):\n    {body}\n"
    assert "REACHED" in run(controls, program, 'run = "validator"')[0].output


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_end_of_one_program_leaves_the_next_alone(controls, body, status):
    assert run(controls, f"{body}\n", 'run = "probe"')[0].status == status
    assert run(controls, "print(7)\n", 'run = "probe"')[0].output == "7\n"


def test_program_that_does_not_end_is_stopped(controls, monkeypatch):
    monkeypatch.setattr(control, "CONTROL_S", 0.3)
    assert run(controls, "while True: pass\n", 'run = "probe"')[0].status == 124


def test_death_of_the_process_is_told_and_the_next_order_starts_another(controls):
    program = "import os\nos.kill(os.getppid(), 9)\n"
    with pytest.raises(InternalError, match="STO-S003"):
        run(controls, program, 'run = "probe"')
    assert run(controls, "print(7)\n", 'run = "probe"')[0].output == "7\n"


def test_process_that_its_program_stopped_is_given_up():
    program = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n"
    with Controls(answer_s=2.0) as impatient:
        with pytest.raises(InternalError, match="STO-S003"):
            run(impatient, program, 'run = "probe"')
        assert run(impatient, "print(7)\n", 'run = "probe"')[0].output == "7\n"
