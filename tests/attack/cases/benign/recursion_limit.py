# /// stoilo-case
# idea = "recursion limit"
# run = "task"
# level = "pure"
# ///
def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


def endless(n):
    return endless(n + 1)


def run(kwargs):
    try:
        endless(0)
    except RecursionError:
        caught = True
    return [depth(200), caught]
