# /// stoilo-case
# idea = "text mining"
# ///
"""Tokenise with re, tf-idf, edit distance, n-gram model, Zipf fit, wrapped report."""
import re
import textwrap
import unicodedata
from collections import ChainMap, Counter, defaultdict
from functools import lru_cache
from heapq import nlargest
from math import log
from random import Random
from string import Template, punctuation

TEXTS = {
    "a": "The quick brown fox jumps over the lazy dog. The dog sleeps; the fox doesn't.",
    "b": "Foxes and dogs: a comparative study of laziness, naïveté and quickness (2nd ed.).",
    "c": "In the beginning there was the dog — and the dog was good.",
}
TOKEN = re.compile(r"(?P<word>[^\W\d_]+(?:'[^\W\d_]+)?)|(?P<number>\d+)", re.UNICODE)


def tokens(text):
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    for m in TOKEN.finditer(text.lower()):
        if m.lastgroup == "word":
            yield m["word"]


def tfidf(docs):
    counts = {k: Counter(tokens(v)) for k, v in docs.items()}
    df = Counter(w for c in counts.values() for w in c)
    return {k: {w: n / sum(c.values()) * log(len(docs) / df[w]) for w, n in c.items()} for k, c in counts.items()}


@lru_cache(maxsize=None)
def levenshtein(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(levenshtein(a[1:], b) + 1, levenshtein(a, b[1:]) + 1, levenshtein(a[1:], b[1:]) + (a[0] != b[0]))


class Markov:
    def __init__(self, order=1):
        self.order = order
        self._table = defaultdict(Counter)

    def feed(self, words):
        words = list(words)
        for i in range(len(words) - self.order):
            self._table[tuple(words[i : i + self.order])][words[i + self.order]] += 1
        return self

    def walk(self, start, n, rng):
        out = [start]
        for _ in range(n):
            options = self._table.get((out[-1],))
            if not options:
                break
            out.append(rng.choices(list(options), weights=options.values())[0])
        return " ".join(out)


def run(kwargs):
    scores = tfidf(TEXTS)
    best = {k: nlargest(3, sorted(v), key=v.get) for k, v in scores.items()}
    text = Markov().feed(tokens(" ".join(TEXTS.values()))).walk("the", 8, Random(1))
    para = textwrap.TextWrapper(width=30, initial_indent="* ", subsequent_indent="  ").fill(TEXTS["b"])
    print(para)
    table = str.maketrans("", "", punctuation)
    merged = ChainMap({"name": "X"}, {"name": "Y", "n": 3})
    return {
        "best": best,
        "walk": text,
        "dist": levenshtein("kitten", "sitting"),
        "info": levenshtein.cache_info().hits > 0,
        "template": Template("$name has ${n} items, $$5").substitute(merged),
        "stripped": TEXTS["c"].translate(table).split()[-1],
        "subs": re.sub(r"(\w+)ed\b", lambda m: m.group(1).upper(), "jumped walked"),
        "split": re.split(r"\s*[;:,]\s*", "a ; b,c :d"),
        "scan": [(m.start(), m.group()) for m in re.finditer(r"dogs?", TEXTS["b"])],
    }
