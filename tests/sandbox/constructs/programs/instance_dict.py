import copy
import json


class Settings:
    def __init__(self, **values):
        self.__dict__.update(values)
        self._private = [1]

    def __repr__(self):
        inner = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items())
        return f"Settings({inner})"

    def __eq__(self, other):
        return self.__dict__ == other.__dict__


def run(kwargs):
    one = Settings(rate=0.1, names=["a"])
    held = vars(one)
    one.later = 3
    held["steps"] = 5
    twin = Settings(**{k: v for k, v in vars(one).items() if not k.startswith("_")})
    popped = twin.__dict__.pop("later")
    del twin.__dict__["rate"]
    found = [repr(one), json.dumps(vars(one)), one.steps, held["later"], popped, hasattr(twin, "rate")]
    found += [one == twin, one == copy.copy(one), {**vars(one)}, dict(vars(twin)), sorted(held), len(held)]
    found += [type(held) is dict, isinstance(held, dict), "x" in held, held.get("x", 1), held | {"y": 2}]
    held |= {"z": 1}
    held.setdefault("z", 5)
    deep = copy.deepcopy(held)
    deep["names"].append("b")
    found += [one.z, one.names, list(reversed(held)), copy.copy(held), str(held), held.popitem()]
    held.clear()
    return [found, vars(one), bool(held), hasattr(3, "__dict__")]


# abuse: STO-G102
class Own:
    pass


def run(kwargs):
    own = Own()
    vars(own)["__cl" + "ass__"] = "REACHED"
    return own.__dict__["__class__"]
