# /// stoilo-case
# idea = "text output"
# ///
"""Aligned tables with format specs, pprint with subclassing, difflib, html escaping, JSON hooks."""
import difflib
import html
import json
import pprint
from collections import OrderedDict, UserString, namedtuple
from dataclasses import asdict, dataclass, field
from datetime import date
from decimal import Decimal
from keyword import iskeyword

Row = namedtuple("Row", "name qty price")


class Money(UserString):
    def total(self):
        return Decimal(self.data.strip("€"))


@dataclass
class Order:
    when: date
    rows: list[Row] = field(default_factory=list)
    meta: dict = field(default_factory=dict)


class Encoder(json.JSONEncoder):
    def default(self, o):
        if isinstance(o, (date, Decimal)):
            return str(o)
        if isinstance(o, set):
            return sorted(o)
        return super().default(o)


def table(rows, head=("item", "qty", "price")):
    widths = [max(len(str(c)) for c in col) for col in zip(head, *rows)]
    yield " | ".join(f"{h:^{w}}" for h, w in zip(head, widths))
    yield "-+-".join("-" * w for w in widths)
    for name, qty, price in rows:
        yield f"{name:<{widths[0]}} | {qty:>{widths[1]},d} | {price:>{widths[2]}.2f}"


def run(kwargs):
    order = Order(date(2024, 5, 1), [Row("bolt", 12000, 0.1), Row("anvil", 2, 149.999)], {"tags": {"b", "a"}, "n": None})
    for line in table(order.rows):
        print(line)
    pprint.pprint({"k" * i: list(range(i * 3)) for i in range(1, 6)}, width=40, compact=True)
    printer = pprint.PrettyPrinter(indent=2, depth=2, sort_dicts=False)
    text = json.dumps(asdict(order), cls=Encoder, indent=1, sort_keys=True)
    back = json.loads(text, object_pairs_hook=OrderedDict, parse_float=Decimal)
    a, b = "one two three".split(), "one tree three four".split()
    return {
        "table": list(table(order.rows)),
        "pretty": printer.pformat(asdict(order)),
        "text": text,
        "price": str(back["rows"][0][2]),
        "diff": list(difflib.unified_diff(a, b, lineterm="")),
        "ratio": round(difflib.SequenceMatcher(None, "kitten", "sitting").ratio(), 4),
        "close": difflib.get_close_matches("appel", ["ape", "apple", "peach"]),
        "html": html.escape("<a href='x'>&</a>"),
        "money": str(Money("12.50€").total() * 2),
        "center": f"{'mid':*^9}|{255:#06x}|{1e-9:g}|{12345.678:,.1f}|{True!s:>6}|{-5:+d}|{0.25:.0%}",
        "keyword": [w for w in ("for", "foo") if iskeyword(w)],
        "percent": "%-8s|%05.1f|%+d|%x" % ("ab", 3.14159, 7, 255),
    }
