def run(kwargs):
    found = []
    for n in range(16):
        if n % 15 == 0:
            found.append("both")
        elif n % 5 == 0 or n % 3 == 0:
            found.append("one" if n % 2 else "even")
        else:
            pass
    return found


# abuse: STO-G020
def run(kwargs):
    return "REACHED" if (eval if 1 else 0)("1") else "no"
