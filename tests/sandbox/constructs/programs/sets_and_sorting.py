def run(kwargs):
    words = "the quick brown fox jumps over the lazy dog".split()
    unique = set(words) - {"the"} | {"cat"}
    words.sort(key=len, reverse=True)
    return [sorted(unique), words[0], frozenset([1]) == {1}, sorted(range(5), key=lambda n: (n % 2, -n)), min(words, key=len), sum([[1], [2]], [])]


# abuse: STO-G101
class Name(str):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def run(kwargs):
    names = sorted(["__globals__"], key=lambda n: 0)
    return "REACHED" if list(map(getattr, [run], names))[0] else "no"
