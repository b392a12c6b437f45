"""Rows of a study's table in the order of their results: the answer first, and the best one marked."""

from __future__ import annotations

import pandas as pd

from fedpns_ray.reporting.curves import line_axes
from fedpns_ray.reporting.tables import Results, judged_by
from fedpns_ray.study.study_file import Study

SCORE = "_score"


def ranked(rows: pd.DataFrame, results: Results) -> pd.DataFrame:
    """The rows of `table`, best first within every setting of the data; those settings stay in the study's order."""
    if rows.empty:
        return rows
    quantity = judged_by(results.done)
    sign = 1 if quantity.better == "lower" else -1
    places = places_of(rows, results.study)
    order = {place: k for k, place in enumerate(dict.fromkeys(places))}
    keys = pd.DataFrame({"place": [order[place] for place in places], SCORE: sign * rows[quantity.key].to_numpy(float)})
    return rows.iloc[keys.sort_values(["place", SCORE], kind="stable").index].reset_index(drop=True)


def best(rows: pd.DataFrame, results: Results) -> list[bool]:
    """Which of the ranked rows is the best of two or more with the same data."""
    places = places_of(rows, results.study)
    score = rows[judged_by(results.done).key]
    first = {place: k for k, place in reversed(list(enumerate(places))) if score[k] == score[k]}
    return [places.count(place) > 1 and first.get(place) == k for k, place in enumerate(places)]


def places_of(rows: pd.DataFrame, study: Study) -> list[str]:
    """The setting of the data that each row belongs to: rows of one place compete."""
    others = [axis for axis in study.axes if axis not in line_axes(study)]
    return [repr([row.get(axis) for axis in others]) for row in rows.to_dict("records")]
