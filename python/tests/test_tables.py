"""Tables of Arrow as traces: what is simulated is what the same requests in a file are."""

import gc
import os
import tempfile
import unittest

import futae
import pandas
import polars
import pyarrow

LEVELS = {"levels": ["lru:100blocks"], "frame": "report"}
REQUESTS = 20_003


def of(report):
    """What does not depend on where the requests were."""
    facts = {key: report["trace"][key] for key in ("trace_requests", "accesses", "distinct_blocks", "view")}
    return facts, report["runs"][0]["levels"], report["runs"][0]["combined_hit_ratio"]


def batches(requests=REQUESTS, rows=1_500):
    for begin in range(0, requests, rows):
        at = range(begin, min(begin + rows, requests))
        yield pyarrow.record_batch(
            {
                "time_us": pyarrow.array([one * 1_000 for one in at], pyarrow.int64()),
                "offset_bytes": pyarrow.array([one * 7919 % 613 * 4096 for one in at], pyarrow.uint64()),
                "length_bytes": pyarrow.array([4096 * (1 + one % 3) for one in at], pyarrow.uint32()),
                "is_write": pyarrow.array([one % 5 == 0 for one in at]),
                "volume": pyarrow.array([one % 2 for one in at], pyarrow.uint16()),
            }
        )


class Tables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.path = os.path.join(place.name, "some.csv")
        cls.table = pyarrow.Table.from_batches(batches())
        with open(cls.path, "w") as file:
            file.write("time_us,offset,length,op,volume\n")
            for row in cls.table.to_pylist():
                fields = (row["time_us"], row["offset_bytes"], row["length_bytes"], "RW"[row["is_write"]], row["volume"])
                file.write(",".join(map(str, fields)) + "\n")
        cls.wanted = of(futae.simulate(cls.path, **LEVELS))

    def test_tables_are_simulated_as_the_file(self):
        sources = {
            "pyarrow": self.table,
            "reader": self.table.to_reader(max_chunksize=777),
            "batch": self.table.combine_chunks().to_batches()[0],
            "polars": polars.DataFrame(self.table),
            "pandas": self.table.to_pandas(),
            "futae": futae.Trace(self.path).table(),
        }
        for name, source in sources.items():
            with self.subTest(name):
                found = futae.simulate(source, **LEVELS)
                self.assertEqual(of(found), self.wanted)
                self.assertEqual(found["trace"]["formats"], ["table"])
        # One that was read leaves the others as they were.
        self.assertEqual(of(futae.simulate(self.table, **LEVELS)), self.wanted)

    def test_a_list_has_a_table_for_each_guest(self):
        found = futae.simulate([self.table, self.table], **LEVELS)
        wanted = futae.simulate([self.path, self.path], **LEVELS)
        self.assertEqual(of(found), of(wanted))
        self.assertEqual(found["trace"]["files"], ["table 0", "table 1"])

    def test_types_of_every_kind(self):
        frame = pandas.DataFrame(
            {
                "op": pandas.Categorical(["get", "set", "get", "delete", "get"]),
                "key": ["a", "b", "a", "a", "b"],
                "size": [10, 20, 10, 0, 20],
                "timestamp": pandas.to_datetime([1, 2, 3, 4, 5], unit="s"),
            }
        )
        for source in (frame, polars.DataFrame(frame), pyarrow.Table.from_pandas(frame)):
            with self.subTest(type=type(source)):
                report = futae.simulate(source, **LEVELS)
                self.assertEqual((report["trace"]["trace_requests"], report["trace"]["distinct_blocks"]), (4, 2))
        small = pyarrow.table({"a": pyarrow.array([8, 9, 8], pyarrow.int8()), "b": [1.0, 1.0, 2.0]})
        report = futae.simulate(small, columns="offset=0:4096,length=1:512", **LEVELS)
        self.assertEqual(report["trace"]["distinct_blocks"], 2)

    def test_one_batch_is_in_memory_at_a_time(self):
        gc.collect()
        before, most, yielded = pyarrow.total_allocated_bytes(), 0, 0

        def watched():
            nonlocal most, yielded
            for batch in batches(200_000, 10_000):
                yielded += batch.nbytes
                yield batch
                del batch
                most = max(most, pyarrow.total_allocated_bytes() - before)

        schema = next(batches(1)).schema
        found = futae.simulate(pyarrow.RecordBatchReader.from_batches(schema, watched()), **LEVELS)
        self.assertEqual(found["trace"]["trace_requests"], 200_000)
        # Twenty batches were made; the one that is read and the next one may be there.
        self.assertLess(most, yielded / 5)

    def test_errors_name_the_column_and_its_type(self):
        def refused(columns, message, **options):
            with self.assertRaisesRegex(futae.Error, message):
                futae.simulate(pyarrow.table(columns), **LEVELS, **options)

        refused({"offset": [[1]]}, "column offset has the type .*Int64.*, which futae cannot read")
        refused({"offset": [1, None]}, r"record 2 .*column offset \(Int64\): there is no value")
        refused({"offset": [1, -5]}, r"column offset \(Int64\): `-5` is not a whole number")
        refused({"offset": [4096], "op": ["trim"]}, r"column op \(Utf8\): `trim` is not a read or a write")
        refused({"a": [1], "b": [2]}, "of the columns a, b none is named offset or key")
        refused({"offset": [1]}, "format is for trace files", format="csv")
        refused({"offset": pyarrow.array([], pyarrow.int64())}, "the trace has no requests")
        with self.assertWarns(futae.FutaeWarning):
            report = futae.simulate(pyarrow.table({"offset": [4096, None, 8192]}), skip_bad=True, **LEVELS)
        self.assertEqual((report["trace"]["trace_requests"], report["trace"]["records_skipped"]), (2, 1))

    def test_what_a_producer_raises_is_said(self):
        def broken():
            yield next(batches(10))
            raise RuntimeError("the disk is gone")

        schema = next(batches(1)).schema
        with self.assertRaisesRegex(futae.Error, "the disk is gone"):
            futae.simulate(pyarrow.RecordBatchReader.from_batches(schema, broken()), **LEVELS)

    def test_lone_columns_are_still_block_numbers(self):
        numbers = self.table["offset_bytes"]
        for source in (numbers, polars.DataFrame(self.table)["offset_bytes"], self.table.to_pandas()["offset_bytes"]):
            with self.subTest(type=type(source)):
                self.assertEqual(futae.simulate(source, **LEVELS)["trace"]["formats"], ["array"])


if __name__ == "__main__":
    unittest.main()
