# /// stoilo-case
# idea = "class hierarchy walk"
# stopped_by = "gate"
# code = "STO-G101"
# source = "CVE-2025-9959"
# ///
def run(kwargs):
    [root] = type(1).__bases__
    for kind in root.__subclasses__():
        if kind.__name__ == "BuiltinImporter":
            system = kind.load_module("posix")
            return system.read(system.open(kwargs["canary"], 0), 99).decode()
