def run(kwargs):
    try:
        int("x")
    except (ValueError, TypeError) as error:
        return str(error)


# abuse: STO-G014
def run(kwargs):
    try:
        raise ExceptionGroup("g", [ValueError(1)])
    except* ValueError as group:
        found = "REACHED"
    return found
