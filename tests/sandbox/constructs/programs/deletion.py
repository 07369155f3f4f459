def run(kwargs):
    class Box:
        pass

    a, d, box = [1, 2, 3, 4], {"x": 1, "y": 2}, Box()
    box.x = box.y = 1
    x = 5
    del a[1:3], d["x"], box.x, x
    try:
        x
    except UnboundLocalError as error:
        return [a, d, hasattr(box, "x"), box.y, type(error).__name__]


# abuse: STO-G102
import math


def run(kwargs):
    del math.pi
    return "REACHED"
