import io

import pytest

from stoilo.sandbox.facades.tensor_files import load, save
from stoilo.sandbox.language.refusals import GuardError

torch = pytest.importorskip("torch")


def test_state_comes_back_without_a_pickle():
    file = io.BytesIO()
    state = torch.nn.Linear(2, 1).state_dict()
    save({"model": state, "step": 3}, file)
    file.seek(0)
    kept = load(file, map_location="cpu", weights_only=True)
    assert kept["step"] == 3
    assert all(torch.equal(kept["model"][name], state[name]) for name in state)


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"\x80\x02}q\0.", b"STO\1R\1a"])
def test_foreign_bytes_are_refused(data):
    with pytest.raises(ValueError, match=r"torch\.save"):
        load(io.BytesIO(data))


def test_pickles_modules_and_paths_are_refused():
    with pytest.raises(GuardError):
        load(io.BytesIO(), weights_only=False)
    with pytest.raises(TypeError, match="state_dict"):
        save(torch.nn.Linear(1, 1), io.BytesIO())
    with pytest.raises(FileNotFoundError):
        save({}, "model.pt")
    with pytest.raises(FileNotFoundError):
        load("model.pt")
