# /// stoilo-case
# idea = "formatting"
# run = "task"
# level = "pure"
# ///
import string


class Box:
    def __init__(self, w):
        self.w = w


def run(kwargs):
    width, value = 10, 3.14159
    box = Box(7)
    template = string.Template("$who likes $what")
    table = {"a": 1, "b": [1, 2]}
    return [
        f"{value:{width}.{2}f}|{width:>5}|{'x'!r}|{value=:.1f}",
        "{:>8} {:^8} {!r}".format("a", "b", "c"),
        "{0} {1} {0}".format(1, 2),
        "{name:*^9}".format(name="mid"),
        "{0.w} {1[a]} {1[b][1]}".format(box, table),
        "{:{w}}".format(5, w=4),
        "%s %05.2f %-4d|" % ("s", value, 3),
        "{a}-{b}".format_map(table),
        template.substitute(who="Ann", what="tea"),
        format(1234567.891, ",.2f"),
        str.format("{}/{}", 1, 2),
        ", ".join(map("{:02d}".format, range(3))),
    ]
