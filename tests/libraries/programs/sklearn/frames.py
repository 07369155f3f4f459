"""Estimators over pandas' frames: what most notebooks do."""

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler


def _table():
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.normal(size=(80, 3)), columns=["age", "income", "debt"])
    table["city"] = rng.choice(["Bern", "Graz", "Linz"], 80)
    table["kind"] = table["city"].astype("category")
    table.loc[table["age"] > 1.5, "age"] = np.nan
    return table, (table["income"] > table["debt"]).astype(int)


def columns_by_kind(args):
    table, label = _table()
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include=np.number)),
            ("words", OneHotEncoder(handle_unknown="ignore"), ["city", "kind"]),
        ]
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table, label)
    return model.predict_proba(table), model[:-1].get_feature_names_out().tolist()


def frames_out(args):
    table, _ = _table()
    scaler = StandardScaler().set_output(transform="pandas")
    return scaler.fit_transform(table[["income", "debt"]])


def names_of_features(args):
    table, label = _table()
    model = RandomForestClassifier(n_estimators=5, random_state=0)
    model.fit(table[["income", "debt"]], label)
    return model.feature_names_in_.tolist(), model.feature_importances_


def search_over_a_frame(args):
    table, label = _table()
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3)
    search.fit(table[["income", "debt"]], label)
    results = pd.DataFrame(search.cv_results_)
    return results[["param_C", "mean_test_score", "rank_test_score"]]


def split_and_score(args):
    table, label = _table()
    train, test, seen, kept = train_test_split(
        table[["income", "debt"]], label, random_state=0, stratify=label
    )
    model = LinearRegression().fit(train, seen)
    return model.score(test, kept), test.index, cross_val_score(model, train, seen)


def boosted_and_permuted(args):
    table, label = _table()
    model = HistGradientBoostingClassifier(max_iter=5).fit(table[["age", "debt"]], label)
    found = permutation_importance(
        model, table[["age", "debt"]], label, n_repeats=2, random_state=0
    )
    return found.importances_mean, model.predict(table[["age", "debt"]])


def encoded_words(args):
    table, _ = _table()
    return OrdinalEncoder().fit_transform(table[["city", "kind"]])
