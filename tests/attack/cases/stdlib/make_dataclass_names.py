# /// stoilo-case
# idea = "classes made out of names"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import dataclasses


def run(kwargs):
    names = {"__init__": open, "__doc__": "made"}
    made = dataclasses.make_dataclass("Made", ["x"], namespace=names)
    return open(kwargs["canary"]).read() if made else ""
