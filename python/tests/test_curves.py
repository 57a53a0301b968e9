"""Arrays and tables under mrc and locality: what is found is what the same requests in a file give."""

import os
import tempfile
import threading
import unittest

import futae
import numpy
import pandas
import polars
import pyarrow

BLOCKS = [at * at * 7919 % 613 + (at % 7 == 0) * at for at in range(30_000)]
CURVES = [
    {},
    {"policy": "arc", "sizes": ["1%", 100]},
    {"requests": 7_001},
    {"shards": 0.3, "seed": 5},
    {"shards_blocks": 200, "requests": 7_001},
    {"aet": 0.5, "exact": True},
    {"policy": "sieve", "mini": 0.4},
    {"policy": "fifo", "kosmo_blocks": 300, "points": 7},
]
LOCALITY = {"levels": [("lru", 100), "exclusive:200blocks"], "bins": 9, "seed": 3}


def nameless(report):
    return {key: value for key, value in report.items() if key != "source"}


class Curves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.numbers = os.path.join(place.name, "numbers.le64")
        numpy.array(BLOCKS, dtype="<u8").tofile(cls.numbers)
        cls.csv = os.path.join(place.name, "requests.csv")
        cls.table = pyarrow.table(
            {
                "offset": pyarrow.array([block * 4096 for block in BLOCKS], pyarrow.uint64()),
                "length": pyarrow.array([4096 * (1 + block % 3) for block in BLOCKS], pyarrow.uint32()),
                "volume": pyarrow.array([block % 2 for block in BLOCKS], pyarrow.uint16()),
            }
        )
        cls.table.to_pandas().to_csv(cls.csv, index=False)

    def curves(self, source, file, **reading):
        for asked in CURVES:
            with self.subTest(asked=asked):
                found = futae.mrc(source(), **asked, **reading, frame="report")
                wanted = futae.mrc(file, **asked, frame="report")
                self.assertEqual(nameless(found), nameless(wanted))
                self.assertGreater(len(found["curves"][0]["points"]), 1)
        found = futae.locality(source(), **LOCALITY, **reading, frame="report")
        self.assertEqual(nameless(found), nameless(futae.locality(file, **LOCALITY, frame="report")))
        return found["source"]

    def test_an_array_gives_the_curve_of_the_file_of_its_numbers(self):
        self.assertEqual(self.curves(lambda: numpy.array(BLOCKS), self.numbers), "array")
        kinds = [pandas.Series(BLOCKS), pyarrow.array(BLOCKS), polars.Series(BLOCKS), [numpy.array(BLOCKS)]]
        kinds.append(futae.Trace(self.numbers).table()["offset_bytes"])
        for blocks in kinds[:-1]:
            self.assertEqual(nameless(futae.mrc(blocks, frame="report")), nameless(futae.mrc(self.numbers, frame="report")))
        self.assertEqual(len(futae.mrc(kinds[-1], sizes=[1, 2], frame="dict")), 2)

    def test_a_table_gives_the_curve_of_its_file(self):
        self.assertEqual(self.curves(lambda: self.table, self.csv), "table")
        self.curves(lambda: self.table.to_reader(max_chunksize=777), self.csv)
        self.curves(lambda: self.table.rename_columns(["a", "b", "c"]), self.csv, columns="offset=0,length=1,volume=2")

    def test_large_numbers_stay_apart_in_a_sample(self):
        large = numpy.array(BLOCKS, dtype="u8") | numpy.uint64(1 << 63)
        both = numpy.concatenate([large, numpy.array(BLOCKS, dtype="u8")])
        found = futae.mrc(both, shards=1.0, frame="report")
        self.assertEqual(found["blocks"], 2 * len(set(BLOCKS)))

    def test_a_frame_without_rows_has_the_columns_of_one_with_rows(self):
        once = numpy.arange(1000)
        for kind in (pandas.DataFrame, polars.DataFrame):
            frame = kind.__module__.split(".")[0]
            empty, full = (futae.locality(source, frame=frame) for source in (once, "zipf(1.0):1MiB"))
            self.assertEqual((len(empty), list(empty.columns)), (0, list(full.columns)))
            empty, full = (futae.mrc(once, sizes=sizes, frame=frame) for sizes in ([], ["10%"]))
            self.assertEqual((len(empty), list(empty.columns)), (0, list(full.columns)))

    def test_what_is_refused(self):
        blocks = numpy.arange(9)
        for source, given, part in [
            ([blocks, blocks], {}, "here are 2 traces"),
            ([self.numbers, self.numbers], {}, "here are 2 traces"),
            (numpy.array([3, 4, -1, 5]), {}, "number 2 of the array is below 0"),
            (numpy.array([3, 4, -1, 5]), {"shards": 1.0}, "number 2 of the array is below 0"),
            (numpy.array([], dtype="u8"), {}, "is empty"),
            (numpy.array([0.5]), {}, "whole numbers"),
            (blocks, {"view": "start"}, "view is for trace files"),
            (self.table, {"format": "msr"}, "format is for trace files"),
            (self.table.slice(0, 0), {}, "no requests"),
        ]:
            for study in (futae.mrc, futae.locality):
                if study is futae.locality and "shards" in given:
                    continue
                with self.subTest(source=source, study=study), self.assertRaisesRegex(futae.Error, part):
                    study(source, **given)
        for policy in (dict, futae.policy("2q", k_in=0.3), None):
            with self.subTest(policy=policy), self.assertRaisesRegex(futae.Error, "policy=.* is no text"):
                futae.mrc(blocks, policy)
        bad = pyarrow.table({"offset": ["0", "x", "4096"]})
        with self.assertRaisesRegex(futae.Error, "offset"):
            futae.mrc(bad)
        with self.assertWarnsRegex(futae.FutaeWarning, "1 bad records left out"):
            futae.mrc(bad, skip_bad=True)

    def test_other_threads_run_meanwhile(self):
        blocks, done, steps = numpy.tile(numpy.array(BLOCKS), 100), threading.Event(), 0

        def curve():
            futae.mrc(blocks, shards=0.5)
            done.set()

        other = threading.Thread(target=curve)
        other.start()
        while not done.wait(0.001):
            steps += 1
        other.join()
        self.assertGreater(steps, 2)


if __name__ == "__main__":
    unittest.main()
