"""What the types of a table's columns mean: the same in a frame, in Parquet that each library writes, and in plain numbers."""

import hashlib
import os
import tempfile
import unittest

import futae
import polars
import pyarrow
import pyarrow.csv
import pyarrow.parquet

REQUESTS = 3_000


def plain(**first):
    """Columns of requests for objects, after some others."""
    at = range(REQUESTS)
    keys = [one * one * 7919 % 613 for one in at]
    return pyarrow.table({**first, "key": [f"k{key}" for key in keys], "size": [100 + key for key in keys]})


class Types(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path = os.path.join(place.name, "table")

    def sources(self, table, frames=("pyarrow", "polars", "pandas")):
        """A table as frames, and as files of Parquet that each library writes."""
        found = {}
        if "pyarrow" in frames:
            found["pyarrow"] = table
            pyarrow.parquet.write_table(table, self.path + ".pyarrow")
        if "polars" in frames:
            found["polars"] = polars.DataFrame(table)
            found["polars"].write_parquet(self.path + ".polars")
        if "pandas" in frames:
            found["pandas"] = table.to_pandas()
            found["pandas"].to_parquet(self.path + ".pandas")
        return {**found, **{f"{name} in Parquet": f"{self.path}.{name}" for name in frames}}

    def same(self, table, wanted, simulate, **options):
        for name, source in self.sources(table, **options).items():
            with self.subTest(name, schema=str(table.schema)):
                self.assertEqual(simulate(source), wanted)

    def test_times_have_the_unit_of_their_type(self):
        def windows(source):
            return futae.simulate(source, levels=["lru:100blocks"], windows="1min", frame="report")["runs"][0]["windows"]

        seconds = [one * 7 // 10 for one in range(REQUESTS)]
        day = 1_767_225_600
        wanted = {begin: windows(plain(time=[begin + one for one in seconds])) for begin in (0, day)}
        self.assertGreater(len(wanted[day]), 30)
        for unit, second in {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}.items():
            time = pyarrow.time32 if unit in ("s", "ms") else pyarrow.time64
            for begin, of_unit, frames in [
                (day, pyarrow.timestamp(unit), ("pyarrow", "polars", "pandas")),
                (day, pyarrow.timestamp(unit, "UTC"), ("pyarrow", "polars", "pandas")),
                (day, pyarrow.duration(unit), ("pyarrow", "polars", "pandas")),
                # pandas has no times of day other than objects of Python.
                (0, time(unit), ("pyarrow", "polars")),
            ]:
                times = pyarrow.array([(begin + one) * second for one in seconds], pyarrow.int64())
                times = (times.cast(pyarrow.int32()) if time is pyarrow.time32 and begin == 0 else times).cast(of_unit)
                # The type knows better than a name.
                name = "time" if unit != "ms" else "time_us"
                self.same(plain(**{name: times}), wanted[begin], windows, frames=frames)

    def test_keys_may_be_bytes(self):
        def levels(source):
            return futae.simulate(source, levels=["lru:100blocks"], frame="report")["runs"][0]["levels"]

        table = plain()
        wanted = levels(table)
        keys = table["key"].to_pylist()
        digests = [hashlib.md5(key.encode()).digest() for key in keys]
        for values, of in [
            ([key.encode() for key in keys], pyarrow.binary()),
            (digests, pyarrow.large_binary()),
            (digests, pyarrow.binary(16)),
        ]:
            keyed = table.set_column(0, "key", pyarrow.array(values, of))
            self.same(keyed, wanted, levels)
            dictionary = keyed.set_column(0, "key", keyed["key"].dictionary_encode())
            self.same(dictionary, wanted, levels, frames=("pyarrow",))

    def test_dates_are_refused(self):
        dates = pyarrow.array(range(REQUESTS), pyarrow.int32()).cast(pyarrow.date32())
        for name, source in self.sources(plain(time=dates), frames=("pyarrow", "polars")).items():
            with self.subTest(name):
                with self.assertRaisesRegex(futae.Error, r"column time has the type (DATE|Date32), which futae cannot read"):
                    futae.simulate(source, levels=["lru:100blocks"])

    def test_times_to_live_are_those_of_the_csv(self):
        def runs(source):
            report = futae.simulate(source, levels=["lru:10000"], objects=True, frame="report")
            return [{key: value for key, value in run.items() if key != "seconds"} for run in report["runs"]]

        at = range(REQUESTS)
        table = plain(time=[one // 2 for one in at], ttl=[one % 3 * 20 for one in at])
        pyarrow.csv.write_csv(table, self.path)
        wanted = runs(self.path)
        self.assertNotEqual(wanted, runs(table.drop_columns("ttl")))
        self.same(table, wanted, runs)
        spans = pyarrow.array([one % 3 * 20_000 for one in at], pyarrow.duration("ms"))
        self.same(table.set_column(1, "ttl", spans), wanted, runs)

    def test_latencies_are_those_of_the_csv(self):
        def finish(source):
            report = futae.simulate(source, levels=["lru:100blocks"], think="recorded", latency="upper=1us,store=100us",
                                    frame="report")
            return [{key: value for key, value in run.items() if key != "seconds"} for run in report["runs"]]

        at = range(REQUESTS)
        table = plain(time_us=[one * 900 for one in at], latency_us=[one % 7 * 100.5 for one in at])
        pyarrow.csv.write_csv(table, self.path)
        wanted = finish(self.path)
        self.assertNotEqual(wanted, finish(table.drop_columns("latency_us")))
        self.same(table, wanted, finish)

    def test_columns_are_those_of_the_table(self):
        at = range(REQUESTS)
        offsets = [one * 7919 % 613 * 4096 for one in at]
        nested = pyarrow.array([{"offset": one, "length": 1} for one in at])
        table = pyarrow.table({"meta": nested, "x": [0] * REQUESTS, "offset": offsets})

        def levels(source, **options):
            return futae.simulate(source, levels=["lru:100blocks"], frame="report", **options)["runs"][0]["levels"]

        wanted = levels(pyarrow.table({"offset": offsets}))
        self.same(table, wanted, levels)
        self.same(table, wanted, lambda source: levels(source, columns="offset=2"))
        self.same(table.rename_columns(["offset", "x", "lba"]), levels(table, columns="offset=2:512"), levels)
        for source in self.sources(table).values():
            with self.assertRaisesRegex(futae.Error, "column meta has the type .*, which futae cannot read"):
                levels(source, columns="offset=0")


if __name__ == "__main__":
    unittest.main()
