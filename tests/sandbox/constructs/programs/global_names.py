TOTAL = 0
CACHE = {}


def add(n):
    global TOTAL, made_here
    TOTAL += n
    made_here = TOTAL
    CACHE[n] = TOTAL


def run(kwargs):
    add(3)
    add(4)
    return [TOTAL, made_here, CACHE, __name__ != ""]


# abuse: STO-G010
def run(kwargs):
    global __builtins__
    __builtins__ = {}
    return "REACHED"
