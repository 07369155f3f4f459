# /// stoilo-case
# idea = "class hierarchy walk"
# stopped_by = "gate"
# code = "STO-G101"
# source = "CVE-2025-9959"
# ///
def run(kwargs):
    kinds = ().__class__.__base__.__subclasses__()
    [base] = [kind for kind in kinds if kind.__name__ == "_IOBase"]
    [raw] = [kind for kind in base.__subclasses__() if kind.__name__ == "_RawIOBase"]
    [file] = [kind for kind in raw.__subclasses__() if kind.__name__ == "FileIO"]
    return file(kwargs["canary"]).read().decode()
