# /// stoilo-case
# idea = "json text"
# run = "task"
# level = "pure"
# ///
import json
import re
import textwrap


class Encoder(json.JSONEncoder):
    def default(self, o):
        if isinstance(o, complex):
            return [o.real, o.imag]
        return super().default(o)


def run(kwargs):
    text = json.dumps({"b": [1, 2.5, None], "a": "é"}, sort_keys=True, indent=1)
    back = json.loads(text)
    try:
        json.loads("{bad")
    except json.JSONDecodeError as error:
        where = (error.pos, error.msg)
    pattern = re.compile(r"(?P<key>\w+)=(?P<value>\d+)", re.IGNORECASE)
    found = {m["key"]: int(m.group("value")) for m in pattern.finditer("a=1 B=22 c=x")}
    swapped = re.sub(r"(\w+) (\w+)", lambda m: f"{m[2]} {m[1]}", "hello world")
    return [
        text,
        back,
        where,
        found,
        swapped,
        re.split(r"[,;]\s*", "a, b;c"),
        json.dumps(3 + 4j, cls=Encoder),
        textwrap.dedent("  x\n   y"),
        textwrap.fill("one two three four", 9),
    ]
