"""The time model of a step, against numbers by hand."""

import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.trainers.fitting import make_trainer
from stoilo.learn.trainers.progress import Conditions, Estimate
from stoilo.learn.trainers.trainer import TrainerOptions
from tests.support.points import make_model, make_samples

HOME = Conditions(
    volunteers=3,
    poll_s=10.0,
    download=1e6,
    upload=5e5,
    validate_s=2.0,
    slowdown=2.0,
    deadline_s=600.0,
)


def of(conditions, tasks, compute_s):
    sizes = {"download_bytes": 4_000_000, "upload_bytes": 1_000_000}
    return Estimate.of(conditions, tasks, **sizes, compute_s=compute_s)


def test_step_is_the_sum_of_its_parts_for_each_round():
    found = of(HOME, 8, 50.0)
    assert (found.download_s, found.upload_s, found.compute_s) == (4.0, 2.0, 100.0)
    assert found.task_s == 10.0 + 4.0 + 100.0 + 2.0 + 2.0
    assert found.rounds == 3
    assert found.step_s == 3 * 118.0
    assert found.warnings() == ()
    assert str(found).startswith("step ≈ 354.0 s (8 tasks, 3 rounds)")


@pytest.mark.parametrize(
    ("compute_s", "warning"),
    [(26.9, "too small"), (27.1, ""), (140.9, ""), (141.1, "too large")],
)
def test_tasks_that_are_too_small_or_too_large_are_warned_of(compute_s, warning):
    found = "\n".join(of(HOME, 3, compute_s).warnings())
    assert bool(found) == bool(warning)
    assert warning in found


@pytest.mark.parametrize(
    "changes", [{"volunteers": 0}, {"download": 0.0}, {"poll_s": -1.0}]
)
def test_conditions_without_sense_are_refused(changes):
    with pytest.raises(UsageError, match=f"{next(iter(changes))}.*STO-T040"):
        Conditions(**changes)


def test_trainer_measures_and_moves_nothing():
    trainer = make_trainer(
        "vcasgd", make_model(), make_samples(), options=TrainerOptions(tasks=6)
    )
    found = trainer.estimate(Conditions(volunteers=2, download=100.0, upload=10.0))
    assert (found.tasks, found.rounds) == (6, 3)
    assert found.download_s == (15 * 8 + 20 * 4 * 8 + 20 * 8) / 100.0
    assert found.upload_s == 15 * 8 / 10.0
    assert found.compute_s > 0.0
    assert "too small" in str(found)
    assert trainer.snapshot.version == 0
    assert trainer.run.tally.sent_bytes == 0
