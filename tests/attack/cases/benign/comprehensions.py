# /// stoilo-case
# idea = "comprehensions"
# run = "task"
# level = "pure"
# ///
def run(kwargs):
    words = "the quick brown fox jumps over the lazy dog the end".split()
    counts = {word: words.count(word) for word in words}
    letters = {c for word in words for c in word if c not in "aeiou"}
    pairs = [(i, j) for i in range(5) for j in range(i) if (i + j) % 2]
    matrix = [[i * j for j in range(4)] for i in range(3)]
    transposed = [list(row) for row in zip(*matrix)]
    flat = [x for row in matrix for x in row]
    lengths = sum(len(word) for word in words)
    nested = {k: [v for v in range(k)] for k in range(3)}
    big = [y for x in flat if (y := x * 2) > 4]
    return [counts, sorted(letters), pairs, transposed, flat, lengths, nested, big]
