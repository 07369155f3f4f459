"""What the kernel lets a process choose about speculation, by a kernel of the test's own."""

import pytest

from stoilo.sandbox.kernel.mechanisms import restrict_speculation

GET, SET, INDIRECT_BRANCH, FORCE_DISABLE = 52, 53, 1, 8


class Kernel:
    """Answers prctl with one state and keeps what it was told."""

    def __init__(self, state, *, refuses=False):
        self.state, self.refuses, self.told = state, refuses, []

    def __call__(self, option, *arguments):
        if option == GET:
            if self.state is None:
                raise OSError(22, "no such control")
            return self.state
        if self.refuses:
            raise PermissionError
        self.told.append((option, *arguments))
        return 0


@pytest.mark.parametrize(
    ("state", "restricted", "told"),
    [
        pytest.param(None, False, 0, id="an old kernel"),
        pytest.param(0, False, 0, id="not affected"),
        pytest.param(2, False, 0, id="always on, no choice"),
        pytest.param(1 | 2, True, 1, id="on, a choice"),
        pytest.param(1 | 4, True, 0, id="off already"),
        pytest.param(8, True, 0, id="off for good"),
    ],
)
def test_indirect_branches_are_restricted_where_there_is_a_choice(
    state, restricted, told
):
    kernel = Kernel(state)
    assert restrict_speculation(kernel) is restricted
    assert kernel.told == [(SET, INDIRECT_BRANCH, FORCE_DISABLE)] * told


def test_refusal_is_reported_not_raised():
    assert restrict_speculation(Kernel(1 | 2, refuses=True)) is False
