def make(depth):
    if depth == 0:
        return (None, None)
    return (make(depth - 1), make(depth - 1))


def count(tree):
    left, right = tree
    if left is None:
        return 1
    return 1 + count(left) + count(right)


def run(n):
    return [count(make(depth)) for depth in range(n)]
