class Show:
    def __getitem__(self, at):
        return at

    def __missing__(self, key):
        return key


class Default(dict):
    def __missing__(self, key):
        return f"no {key}"


def run(kwargs):
    a, s = list(range(10)), Show()
    a[::2] = "abcde"
    a[-1:] = []
    return [a, a[3], a[-2:], a[::-3], repr(s[1:2]), s[1:2, ..., 0] == (slice(1, 2), ..., 0), Default()["x"], "text"[1:3], {"k": {"l": 1}}["k"]["l"]]


# abuse: STO-G101
def run(kwargs):
    return "REACHED" if [].__class__.__base__.__subclasses__()[0] else "no"
