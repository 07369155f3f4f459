SOURCE = """
from tqdm import tqdm
import tqdm as module
from tqdm.auto import trange

def run(kwargs):
    total, bar = 0, tqdm([1, 2, 3], desc="fit", leave=False)
    for item in bar:
        total += item
        bar.set_description(f"step {item}")
        bar.set_postfix(loss=total)
    with module.tqdm(total=5, unit="B") as other:
        other.update(2)
        other.update()
        tqdm.write("said")
    known = [bar.n, bar.total, len(bar), bar.desc, other.n, module.auto is not None]
    return [total, known, list(trange(2, 4))]
"""


def test_loop_under_a_bar_runs_and_prints_nothing_of_its_own(language):
    frame, printed = language.call(SOURCE)
    assert frame["status"] == "ok", frame
    assert printed == "said\n"
    assert language.value(SOURCE) == [6, [3, 3, 3, "step 3: ", 3, True], [2, 3]]
