"""Tables: joining, reshaping, cleaning, text, categories, levels, missing values."""

import io

import numpy as np
import pandas as pd

SPECIES = ["setosa", "virginica", "versicolor"]


def _measurements():
    draws = np.random.default_rng(11)
    kinds = draws.choice(SPECIES, 150)
    length = draws.normal(5.8, 0.8, 150) + (kinds == "virginica") * 0.9
    return pd.DataFrame({"species": kinds, "length": length, "width": length * 0.4 + 1})


def joins_of_every_kind(args):
    left = pd.DataFrame({"key": ["a", "b", "b", "d"], "x": [1, 2, 3, 4]})
    right = pd.DataFrame({"key": ["b", "b", "c", "a"], "y": [0.5, 1.5, 2.5, 3.5]})
    kinds = ["inner", "left", "right", "outer"]
    joined = {kind: left.merge(right, on="key", how=kind) for kind in kinds}
    marked = left.merge(right, how="outer", on="key", indicator=True)
    beside = left.set_index("key").join(right.groupby("key").sum(), how="left")
    return joined, marked, beside, left.merge(right, how="cross").shape


def concatenated_with_keys(args):
    parts = {name: _measurements().head(3) for name in ("first", "second")}
    stacked = pd.concat(parts, names=["batch", "row"])
    wide = pd.concat([part["length"] for part in parts.values()], axis=1, keys=[1, 2])
    return stacked, wide, stacked.xs("second")["width"].sum()


def long_and_wide(args):
    marks = pd.DataFrame(
        {"pupil": ["Ada", "Ben"], "maths": [1, 2], "music": [2, 1], "sport": [3, 3]}
    )
    long = marks.melt("pupil", var_name="subject", value_name="mark")
    back = long.pivot(index="pupil", columns="subject", values="mark")
    stacked = marks.set_index("pupil").stack()
    return long, back, stacked.unstack(0), back.T.reset_index()


def text_cleaned(args):
    names = pd.Series(["  Müller, Anna ", "meier,  Bob", None, "O'Neil, Cy"])
    parts = names.str.strip().str.extract(r"(?P<last>[^,]+),\s*(?P<first>\w+)")
    return pd.DataFrame(
        {
            "last": parts["last"].str.title(),
            "initial": parts["first"].str[0].str.upper(),
            "length": names.str.len(),
            "has": names.str.contains("an", case=False, na=False),
            "padded": parts["first"].str.pad(5, fillchar="."),
            "joined": names.str.replace(r"\W+", "-", regex=True),
        }
    )


def text_split_and_counted(args):
    lines = pd.Series(["the cat sat", "the dog", "a cat and a dog"])
    words = lines.str.split().explode()
    dummies = lines.str.get_dummies(sep=" ")
    return words.value_counts(), dummies, lines.str.findall("[aeiou]").str.len()


def missing_values_handled(args):
    table = pd.DataFrame({"a": [1, np.nan, 3, np.nan], "b": [np.nan, 2.0, 2.5, 1.0]})
    nullable = table.convert_dtypes()
    return (
        table.fillna(table.mean()),
        table.dropna(thresh=2),
        table["a"].combine_first(table["b"]),
        nullable.isna().sum(),
        nullable["a"] + nullable["b"],
        (nullable["a"] > 2).fillna(False).tolist(),
    )


def binned_and_encoded(args):
    lengths = _measurements()["length"]
    bins = pd.cut(lengths, [0, 5, 6, 7, 20], labels=["short", "mid", "long", "huge"])
    quarters = pd.qcut(lengths, 4)
    encoded = pd.get_dummies(_measurements()["species"], dtype=float)
    codes, names = pd.factorize(_measurements()["species"], sort=True)
    return bins.value_counts().sort_index(), quarters.cat.categories, encoded, codes, names


def categories_in_order(args):
    sizes = pd.Series(["small", "large", "small", None]).astype(
        pd.CategoricalDtype(["small", "medium", "large"], ordered=True)
    )
    renamed = sizes.cat.rename_categories({"small": "S", "medium": "M", "large": "L"})
    return (
        sizes.max(),
        (sizes < "large").tolist(),
        sizes.cat.codes,
        renamed.cat.remove_unused_categories(),
        sizes.sort_values(),
    )


def levels_sliced(args):
    index = pd.MultiIndex.from_product([["x", "y"], [2023, 2024]], names=["site", "year"])
    table = pd.DataFrame({"v": [1.0, 2.0, 3.0, 4.0], "w": list("abcd")}, index=index)
    years = pd.IndexSlice[:, 2024]
    return (
        table.loc[("x", 2024), "v"],
        table.loc[years, :],
        table.groupby(level="site").sum(numeric_only=True),
        table.swaplevel().sort_index(),
        table["v"].unstack("year"),
        table.index.get_level_values("year"),
    )


def described_and_correlated(args):
    table = _measurements()
    numbers = table[["length", "width"]]
    return (
        table.describe(include="all"),
        numbers.corr(method="spearman"),
        numbers.cov(),
        numbers.quantile([0.1, 0.9]),
        table["length"].skew(),
        table.nlargest(3, "length"),
    )


def sampled_and_shuffled(args):
    table = _measurements()
    return (
        table.sample(5),
        table.sample(frac=0.1, random_state=1),
        table.groupby("species").sample(2, random_state=4),
    )


def written_as_text(args):
    table = _measurements().head(4).round(3)
    with pd.option_context("display.max_rows", 2, "display.precision", 2):
        shown = repr(table)
    buffer = io.StringIO()
    table.info(buf=buffer)
    return (
        table.to_csv(index=False),
        table.to_json(orient="records"),
        table.to_string(float_format="%.1f"),
        table.to_html(),
        shown,
        buffer.getvalue(),
    )


def numbers_as_arrays(args):
    table = _measurements()
    values = table[["length", "width"]].to_numpy()
    fitted, *_ = np.linalg.lstsq(np.c_[np.ones(150), values[:, 0]], values[:, 1], rcond=None)
    roots = np.sqrt(table["length"])
    return fitted, roots, np.log1p(table[["width"]]), table["length"].to_list()[:3]


def steps_in_a_chain(args):
    return (
        _measurements()
        .assign(ratio=lambda part: part["length"] / part["width"])
        .pipe(lambda part: part[part["ratio"] > part["ratio"].median()])
        .rename(columns=str.upper)
        .set_index("SPECIES")
        .clip(upper=6)
        .agg({"LENGTH": ["min", "mean"], "RATIO": "max"})
    )


def rows_one_by_one(args):
    table = _measurements().head(6)
    total = sum(row.length * row.width for row in table.itertuples())
    seen = [(place, row["species"]) for place, row in table.iterrows()]
    ranges = table[["length", "width"]].apply(lambda col: col.max() - col.min())
    rows = table.apply(lambda row: f"{row['species'][:2]}{row['length']:.1f}", axis=1)
    return total, seen, ranges, rows, table[["length"]].map(round)


def changed_in_place(args):
    table = _measurements().head(8)
    table.loc[table["length"] > 6, "length"] = 6.0
    table["flag"] = np.where(table["width"] > 3.3, "wide", "narrow")
    table.iloc[0, 1] = -1.0
    table.insert(0, "id", range(8))
    table = table.drop_duplicates("species").reset_index(drop=True)
    table.columns = [name[:2] for name in table.columns]
    table.index.name = "n"
    return table


def intervals_and_sparse(args):
    breaks = pd.IntervalIndex.from_breaks([0, 1, 5, 10])
    found = breaks.get_indexer([0.5, 7, 11])
    sparse = pd.Series([0, 0, 3, 0, 4], dtype=pd.SparseDtype("int64", 0))
    return found, breaks.mid, sparse, sparse.sparse.density, (sparse * 2).sparse.to_dense()


def numbers_from_text(args):
    texts = pd.Series(["1", "2.5", "x", "1e3"])
    return (
        pd.to_numeric(texts, errors="coerce"),
        pd.to_numeric(pd.Series(["1", "2"]), downcast="integer"),
        pd.Series(["1", "0"]).astype("Int64"),
        pd.json_normalize([{"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}]),
        pd.Series([3, 1, 2]).rank(method="dense"),
    )


class Money:
    def __init__(self, cents):
        self.cents = cents

    def __add__(self, other):
        return Money(self.cents + getattr(other, "cents", 0))

    __radd__ = __add__

    def __lt__(self, other):
        return self.cents < other.cents

    def __eq__(self, other):
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self):
        return hash(self.cents)


def own_objects_in_columns(args):
    purse = pd.Series([Money(5), Money(3), Money(5)], dtype=object)
    total = (purse + purse).map(lambda money: money.cents)
    counts = {money.cents: n for money, n in purse.value_counts().items()}
    best = max(purse).cents
    groups = purse.to_frame("m").assign(n=[1, 2, 3]).groupby("m")["n"].sum().tolist()
    return total, counts, best, groups, purse.nunique()
