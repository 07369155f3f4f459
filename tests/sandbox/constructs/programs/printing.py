def run(kwargs):
    print("a", 1, [2.5], sep="-", end="!\n")
    print()
    print(*range(3), sep="")
    print("no newline", end="", flush=True)
    return None


# abuse: STO-G101
def run(kwargs):
    return "REACHED" if getattr(print, "__se" + "lf__") is not None else "no"
