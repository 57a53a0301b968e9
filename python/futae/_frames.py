"""Rows, and frames of them."""

from ._native import Error


def rows_of(report):
    """A row for each run of a report."""
    of_all = {key: report[key] for key in ("objects", "footprint_bytes", "seed", "trace_digest", "version") if key in report}
    if "objects" in report:
        # Caches of objects have one level, and no links.
        return [{**run, **of_all} for run in report["runs"]]
    several = any(len(run["levels"]) > 1 for run in report["runs"])
    rows = []
    for run in report["runs"]:
        levels = run["levels"]
        names = [f"{level['policy']}:{level['capacity_blocks']}blocks" for level in levels]
        row = {"levels": ", ".join(names), "hit_ratio": run["combined_hit_ratio"]}
        if not several:
            row.update(levels[0])
        row.update((key, value) for key, value in run.items() if key != "levels")
        if several:
            for at, level in enumerate(levels):
                row.update((f"level_{at}_{key}", value) for key, value in level.items())
        row.update(of_all)
        rows.append(row)
    return rows


def check_frame(kind, *more):
    """Raises at once what :func:`frame_of` would raise after the work. `more` are kinds that are no frames."""
    kinds = ["pandas", "polars", "dict", *more]
    if kind is None:
        return
    if kind not in kinds:
        *others, last = map(repr, kinds)
        raise Error(f"frame {kind!r} is none of {', '.join(others)} and {last}")
    if kind not in more:
        frame_of([], kind)


def frame_of(rows, kind, columns=None):
    """The rows as a frame of this kind, which was checked. Without rows it has these columns."""
    if kind is None:
        for kind in ("pandas", "polars", "dict"):
            try:
                return frame_of(rows, kind, columns)
            except ImportError:
                continue
    if kind == "dict":
        return rows
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(rows, columns=None if rows else columns)
    import polars

    return polars.DataFrame(rows, None if rows else columns, infer_schema_length=None)
