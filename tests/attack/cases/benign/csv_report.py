# /// stoilo-case
# idea = "tables of text"
# ///
"""Read measurements from CSV text, group, aggregate, write a report."""
import csv
import io
from collections import defaultdict
from operator import attrgetter, itemgetter
from statistics import mean, stdev
from types import SimpleNamespace

RAW = """site,species,mass_g,when
north,finch,21.5,2021-03-01
north,finch,22.1,2021-03-02
south,finch,19.8,2021-03-01
south,"robin, red",18.2,2021-03-05
north,"robin, red",17.9,2021-03-07
south,finch,20.4,2021-03-09
"""


def load(text):
    dialect = csv.Sniffer().sniff(text.splitlines()[0])
    assert dialect.delimiter == ","
    for row in csv.DictReader(io.StringIO(text)):
        yield SimpleNamespace(**{**row, "mass_g": float(row["mass_g"])})


def vars_of(ns):
    return [ns.site, ns.species, ns.mass_g, ns.when]


def run(kwargs):
    records = sorted(load(RAW), key=attrgetter("species", "mass_g"))
    groups = defaultdict(list)
    for r in records:
        groups[r.site, r.species].append(r.mass_g)
    out = io.StringIO()
    writer = csv.writer(out, dialect=csv.excel_tab, lineterminator="\n")
    writer.writerow(["site", "species", "n", "mean", "sd"])
    for (site, species), xs in sorted(groups.items(), key=itemgetter(0)):
        writer.writerow([site, species, len(xs), f"{mean(xs):.2f}", f"{stdev(xs):.2f}" if len(xs) > 1 else ""])
    print(out.getvalue(), end="")
    heaviest = max(records, key=attrgetter("mass_g"))
    return {"lines": out.getvalue().splitlines(), "heaviest": vars_of(heaviest)}
