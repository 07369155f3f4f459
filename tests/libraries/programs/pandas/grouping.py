"""Groups: aggregates by name, by function, named, over windows and over nothing."""

import numpy as np
import pandas as pd


def _sales():
    draws = np.random.default_rng(7)
    rows = 400
    return pd.DataFrame(
        {
            "shop": draws.choice(["north", "south", "east", "west"], rows),
            "kind": pd.Categorical(draws.choice(["a", "b", "c"], rows)),
            "amount": draws.gamma(2.0, 30.0, rows),
            "pieces": draws.integers(1, 9, rows),
        }
    )


def totals_by_shop_and_kind(args):
    sales = _sales()
    table = sales.groupby(["shop", "kind"], observed=True).agg(
        total=("amount", "sum"),
        mean=("amount", "mean"),
        most=("pieces", "max"),
        spread=("amount", lambda values: values.quantile(0.9) - values.quantile(0.1)),
    )
    return table.round(9).reset_index().to_dict("list")


def several_aggregates_by_name(args):
    table = _sales().groupby("shop")[["amount", "pieces"]].agg(["mean", "std", "count"])
    return {"/".join(key): list(column) for key, column in table.items()}


def standardised_within_groups(args):
    sales = _sales()
    scores = sales.groupby("shop")["amount"].transform(
        lambda values: (values - values.mean()) / values.std()
    )
    ranks = sales.groupby("shop")["amount"].rank(pct=True)
    shifted = sales.groupby("kind", observed=True)["pieces"].shift(1)
    return scores.to_numpy(), ranks.to_numpy(), shifted.fillna(0).to_numpy()


def largest_of_each_group(args):
    sales = _sales()
    best = sales.loc[sales.groupby("shop")["amount"].idxmax()]
    head = sales.sort_values("amount").groupby("kind", observed=True).head(2)
    big = sales.groupby("shop").filter(lambda part: part["pieces"].sum() > 400)
    return best.to_dict("records"), head.index.tolist(), len(big)


def pivot_with_margins(args):
    table = _sales().pivot_table(
        index="shop", columns="kind", values="amount", aggfunc="sum", margins=True,
        observed=True,
    )
    return table


def cross_counts(args):
    sales = _sales()
    return pd.crosstab(sales["shop"], sales["kind"], normalize="index")


def applied_to_each_group(args):
    def weigh(part):
        weights = part["pieces"] / part["pieces"].sum()
        return pd.Series({"weighted": (part["amount"] * weights).sum(), "n": len(part)})

    return _sales().groupby("shop")[["amount", "pieces"]].apply(weigh)
