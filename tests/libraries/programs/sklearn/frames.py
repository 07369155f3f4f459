"""Models over frames of pandas, columns by name."""

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def _table():
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60)})
    table["kind"] = pd.Categorical(["a", "b", "c"] * 20)
    table["label"] = (table["x"] + table["y"] > 0).astype(int)
    return table


def _columns():
    numbers, words = StandardScaler(), OneHotEncoder(sparse_output=False)
    return ColumnTransformer([("n", numbers, ["x", "y"]), ("w", words, ["kind"])])


def columns_of_two_kinds(args):
    table, columns = _table(), _columns()
    return columns.fit_transform(table), list(columns.get_feature_names_out())


def a_frame_out_of_a_scaler(args):
    return StandardScaler().set_output(transform="pandas").fit_transform(_table()[["x"]])


def forest_over_columns(args):
    table = _table()
    forest = RandomForestClassifier(5, random_state=0)
    model = make_pipeline(_columns(), forest)
    here, there = train_test_split(table, random_state=1)
    model.fit(here, here["label"])
    return model.predict_proba(there), cross_val_score(model, table, table["label"])


def search_over_a_frame(args):
    table = _table()
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, cv=3)
    search.fit(table[["x", "y"]], table["label"])
    return search.best_params_, search.best_score_, list(search.feature_names_in_)
