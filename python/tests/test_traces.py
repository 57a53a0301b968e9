"""futae.Trace and futae.mrc, against a file that is written here and against the command line."""

import gzip
import json
import os
import subprocess
import tempfile
import unittest

import futae
import numpy
import pyarrow
import pyarrow.parquet

BINARY = os.environ["FUTAE_BINARY"]
MAP = "time=0:s,offset=1,length=2,kind=3"


class OfAFile(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.path = os.path.join(self.place.name, "some.csv.gz")
        # More than a batch of the reader.
        self.wanted = [(at, at * 7919 % 613 * 4096, 4096 * (1 + at % 3), at % 5 == 0) for at in range(70_000)]
        with gzip.open(self.path, "wt", compresslevel=1) as file:
            for at, offset, length, is_write in self.wanted:
                file.write(f"{at},{offset},{length},{'RW'[is_write]}\n")
        self.trace = futae.Trace(self.path, columns=MAP)

    def mrc(self, *arguments):
        done = subprocess.run([BINARY, "mrc", "--json", *arguments], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def test_requests_are_those_of_the_file(self):
        for _ in range(2):
            found = [(one.time_us, one.offset_bytes, one.length_bytes, one.is_write) for one in self.trace]
            self.assertEqual(found, [(at * 1_000_000, *rest) for at, *rest in self.wanted])

    def test_arrays_have_the_same(self):
        whole = self.trace.to_numpy()
        self.assertEqual(len(whole), len(self.wanted))
        self.assertEqual(whole["offset_bytes"].tolist(), [one[1] for one in self.wanted])
        self.assertEqual(whole["is_write"].tolist(), [one[3] for one in self.wanted])
        batches = list(self.trace.batches(30_000))
        self.assertEqual([len(batch) for batch in batches], [30_000, 30_000, 10_000])
        self.assertTrue((numpy.concatenate(batches) == whole).all())
        with self.assertRaisesRegex(futae.Error, "requests=0"):
            next(self.trace.batches(0))

    def test_no_time_is_none(self):
        path = os.path.join(self.place.name, "numbers.ids")
        with open(path, "w") as file:
            file.write("3\n4\n3\n")
        trace = futae.Trace(path)
        self.assertEqual([one.time_us for one in trace], [None] * 3)
        self.assertEqual(trace.to_numpy()["time_us"].tolist(), [-1] * 3)

    def test_info(self):
        self.assertEqual((self.trace.info()["format"], self.trace.info()["compression"]), ("csv", "gzip"))

    def test_bad_records_and_files_are_named(self):
        path = os.path.join(self.place.name, "bad.csv")
        with open(path, "w") as file:
            file.write("1,4096,4096,R\n2,oops,4096,R\n")
        trace = futae.Trace(path, columns=MAP)
        for read in (list, futae.Trace.to_numpy):
            with self.assertRaisesRegex(futae.Error, "bad.csv"):
                read(trace)
        with self.assertWarnsRegex(futae.FutaeWarning, "1 bad records left out"):
            self.assertEqual(len(futae.Trace(path, columns=MAP, skip_bad=True).to_numpy()), 1)
        with self.assertRaisesRegex(futae.Error, "nowhere"):
            futae.Trace("nowhere")

    def test_a_trace_is_simulated_as_its_file(self):
        row = futae.simulate(self.trace, ["lru:100blocks"], frame="dict")[0]
        same = futae.simulate(self.path, ["lru:100blocks"], columns=MAP, frame="dict")[0]
        self.assertEqual((row["hits"], row["requests"]), (same["hits"], same["requests"]))
        self.assertGreater(row["requests"], len(self.wanted))

    def test_a_trace_says_itself_how_it_is_read(self):
        large = futae.Trace(self.path, columns=MAP, block="64KiB")
        one, listed = (futae.simulate(source, ["lru:100blocks"], frame="dict")[0]["requests"] for source in (large, [large]))
        same = futae.simulate(self.path, ["lru:100blocks"], columns=MAP, block="64KiB", frame="dict")[0]["requests"]
        self.assertEqual((one, listed), (same, same))
        for told in ({"block": "64KiB"}, {"columns": MAP}, {"format": "csv"}, {"skip_bad": True}):
            with self.subTest(told=told), self.assertRaisesRegex(futae.Error, "a Trace says itself"):
                futae.simulate(self.trace, ["lru:100blocks"], **told)
            with self.subTest(told=told), self.assertRaisesRegex(futae.Error, "a Trace says itself"):
                futae.mrc(self.trace, **told)
        with self.assertRaisesRegex(futae.Error, "all with the same options"):
            futae.simulate([large, self.trace], ["lru:100blocks"])

    def test_settings_of_no_use_are_named(self):
        for wrong in ({"seed": -1}, {"requests": 1e3}, {"threads": -1}, {"bounds": 2}):
            (name,) = wrong
            with self.subTest(wrong=wrong), self.assertRaisesRegex(futae.Error, f"{name}="):
                futae.simulate(self.trace, ["lru:100blocks"], **wrong)
        for study, wrong in [(futae.mrc, {"points": -1}), (futae.mrc, {"exact": "no"}), (futae.locality, {"bins": 1.5})]:
            (name,) = wrong
            with self.subTest(wrong=wrong), self.assertRaisesRegex(futae.Error, f"{name}="):
                study(self.trace, **wrong)
        futae.simulate(self.trace, ["lru:100blocks"], bounds=numpy.bool_(False), seed=numpy.int64(3))

    def test_volumes_that_come_late_are_known(self):
        path = os.path.join(self.place.name, "late.csv")
        with open(path, "w") as file:
            file.write("offset,length,volume\n")
            file.writelines(f"{at * 4096},4096,{'a' if at < 70_000 else 'b'}\n" for at in range(80_000))
        self.assertEqual(futae.Trace(path).info()["volumes"], ["a", "b"])

    def test_a_request_without_a_key_is_none(self):
        path = os.path.join(self.place.name, "null.csv")
        with open(path, "w") as file:
            file.write("time,key\n1,a\n2,\n3,b\n4,\n")
        table = pyarrow.table({"key": ["a", None, "b", None]})
        stored = os.path.join(self.place.name, "null.parquet")
        pyarrow.parquet.write_table(table, stored)
        for source in (path, stored, table):
            with self.subTest(source=source):
                with self.assertRaisesRegex(futae.Error, "a key"):
                    futae.simulate(source, ["lru:3blocks"], warmup=0)
                with self.assertWarnsRegex(futae.FutaeWarning, "2 bad records left out"):
                    row = futae.simulate(source, ["lru:3blocks"], warmup=0, skip_bad=True, frame="dict")[0]
                self.assertEqual((row["requests"], row["hits"]), (2, 0))

    def test_columns_that_mean_the_same_are_told_of(self):
        table = pyarrow.table({"lba": [0] * 9, "offset": [at * 4096 for at in range(9)]})
        stored = os.path.join(self.place.name, "rivals.parquet")
        pyarrow.parquet.write_table(table, stored)
        for source in (stored, table):
            with self.subTest(source=source), self.assertWarnsRegex(futae.FutaeWarning, "lba"):
                futae.simulate(source, ["lru:3blocks"], warmup=0)

    def test_parquet_has_the_same_requests(self):
        path = os.path.join(self.place.name, "some.parquet")
        times, offsets, lengths, writes = zip(*self.wanted)
        table = pyarrow.table({"time_s": times, "offset": offsets, "length": lengths, "is_write": writes})
        pyarrow.parquet.write_table(table, path, compression="zstd")
        self.assertTrue((futae.Trace(path).to_numpy() == self.trace.to_numpy()).all())

    def test_curves_are_those_of_the_command_line(self):
        csv = ["--columns", MAP]
        for arguments, given, options in [
            (["zipf(1.0):32MiB"], ["zipf(1.0):32MiB"], {}),
            (["zipf(1.0):32MiB", "--policy", "sieve", "--sizes", "1%,100blocks", "--requests", "20000"],
             ["zipf(1.0):32MiB", "sieve"], dict(sizes=["1%", 100], requests=20_000)),
            (["zipf(1.0):32MiB", "--exact", "--shards", "0.3", "--mini", "0.2", "--seed", "5", "--points", "7"],
             ["zipf(1.0):32MiB"], dict(exact=True, shards=0.3, mini=0.2, seed=5, points=7)),
            ([self.path, *csv], [self.trace], {}),
            ([self.path, "--shards-blocks", "200", *csv], [self.path], dict(shards_blocks=200, columns=MAP)),
        ]:
            with self.subTest(arguments=arguments):
                wanted = self.mrc(*arguments)
                self.assertEqual(futae.mrc(*given, **options, frame="report"), wanted)
                frame = futae.mrc(*given, **options)
                points = [point["miss_ratio"] for curve in wanted["curves"] for point in curve["points"]]
                self.assertEqual(frame["miss_ratio"].tolist(), points)
                self.assertGreater(len(points), 1)

    def test_wrong_curves_are_refused(self):
        for options, part in [
            (dict(policy="arc", shards=0.1), "mini=0.1"),
            (dict(points=0), "at least 1"),
            (dict(repeats=3), "mini=0.1"),
            (dict(sizes=["16TiB"]), "268435456"),
            (dict(sizes=[0]), "at least one block"),
            (dict(policy="lur"), "lur"),
            (dict(shards=2.0), "2"),
            (dict(view="start"), "view is for trace files"),
        ]:
            with self.subTest(options=options), self.assertRaises(futae.Error) as raised:
                futae.mrc("loop:4MiB", **options)
            self.assertIn(part, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
