def run(kwargs):
    assert kwargs is not None, "never"
    try:
        assert [] == [1], "lists differ"
    except AssertionError as error:
        return [str(error), error.args]


# abuse: STO-G101
def run(kwargs):
    try:
        assert 0, "x"
    except AssertionError as error:
        return "REACHED" if getattr(error, "__trace" + "back__") else "no"
