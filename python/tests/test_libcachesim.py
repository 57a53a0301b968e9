"""futae.libcachesim: the counts that libCacheSim 0.3.5 had, by the names that it has."""

import csv
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import futae
import futae.libcachesim as lcs
import numpy

BINARY = os.environ["FUTAE_BINARY"]
RECORDED = pathlib.Path(os.environ["FUTAE_ROOT"]) / "crates/futae-cli/src/command/truth/libcachesim-0.3.5.csv"
REQUESTS = 200_000
# Those with the same counts; of the others `futae truth` says why they differ.
SAME = {
    "fifo": lcs.FIFO, "lru": lcs.LRU, "clock": lcs.Clock, "sieve": lcs.Sieve, "arc": lcs.ARC, "lfu-in-cache": lcs.LFU, "2q": lcs.TwoQ,
    "opt": lcs.Belady, "gdsf": lcs.GDSF, "slru": lcs.SLRU, "clock2q-plus(ghost=0.9)": lcs.Clock2QPlus, "lru-k": lcs.LRUK,
}  # fmt: skip
NEAR = {
    "s3-fifo": lcs.S3FIFO, "lirs": lcs.LIRS, "w-tinylfu": lcs.WTinyLFU, "lecar": lcs.LeCaR, "cacheus": lcs.Cacheus,
}  # fmt: skip
# Misses, and bytes missed per byte asked for, of sizes that differ: lab/truth/record_sizes.py, "even".
SIZED = [
    (lcs.FIFO, 200_000, 59_315, 0.98852), (lcs.FIFO, 2_000_000, 53_142, 0.88405), (lcs.LRU, 2_000_000, 53_075, 0.88314),
    (lcs.LRU, 10_000_000, 28_108, 0.46738), (lcs.Sieve, 2_000_000, 51_510, 0.85760), (lcs.LFU, 10_000_000, 23_833, 0.39988),
    (lcs.GDSF, 2_000_000, 45_539, 0.87839),
]  # fmt: skip


def sized_requests(count):
    """The requests of lab/truth/record_sizes.py."""
    state = 1
    for _ in range(count):
        draws = []
        for _ in range(3):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            draws.append((state >> 33) % 3000)
        number = min(draws)
        yield number, 1 + number * number * 7919 % 20_011


class Names(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name

    def trace(self, name, text):
        path = os.path.join(self.place, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_misses_are_those_of_libcachesim(self):
        workload, blocks = "zipf(0.7):64MiB", 1000
        with open(RECORDED) as file:
            rows = [row for row in csv.DictReader(file) if row["workload"] == workload and row["blocks"] == str(blocks)]
        recorded = {row["policy"]: int(row["misses"]) for row in rows}
        path = os.path.join(self.place, "t.oracleGeneral")
        subprocess.run([BINARY, "trace", "convert", workload, path, "--requests", str(REQUESTS)], check=True, capture_output=True)
        reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=True))
        for policy, cache in {**SAME, **NEAR}.items():
            with self.subTest(policy=policy):
                ratio, byte_ratio = cache(blocks, hashpower=16).process_trace(reader)
                self.assertEqual(ratio, byte_ratio)
                away = 0 if policy in SAME else REQUESTS // 50
                self.assertLessEqual(abs(round(ratio * REQUESTS) - recorded[policy]), away)

    def test_sizes_are_counted_as_libcachesim_counts_them(self):
        all_requests, following, records = list(sized_requests(60_000)), {}, []
        for at in reversed(range(len(all_requests))):
            number, size = all_requests[at]
            records.append(struct.pack("<IQIq", at // 1000, number, size, following.get(number, -1)))
            following[number] = at
        path = os.path.join(self.place, "sizes.oracleGeneral")
        with open(path, "wb") as file:
            file.write(b"".join(reversed(records)))
        reader = lcs.TraceReader(trace=path, trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE)
        for cache, size, misses, byte_miss_ratio in SIZED:
            with self.subTest(cache=cache, size=size):
                found = cache(cache_size=size).process_trace(reader)
                self.assertEqual(round(found[0] * 60_000), misses)
                self.assertAlmostEqual(found[1], byte_miss_ratio, 5)
        part, _ = lcs.LRU(2_000_000).process_trace(reader, max_req=10_000)
        self.assertNotEqual(part, lcs.LRU(2_000_000).process_trace(reader)[0])

    def test_a_csv_and_shares_and_admission_by_size(self):
        lines = [f"{at},k{at * at % 31},{1 + at % 31 * 10}\n" for at in range(500)]
        path = self.trace("a.csv", "".join(lines))
        params = lcs.ReaderInitParam(time_field=1, obj_id_field=2, obj_size_field=3)
        reader = lcs.TraceReader(path, lcs.TraceType.CSV_TRACE, params)
        found = lcs.LRU(0.3, admissioner=lcs.SizeAdmissioner(200)).process_trace(reader)
        wanted = futae.simulate(path, policies=["lru"], sizes=["30%"], objects=True, ttl="none", admit_size_max=200,
                                columns="time=0:s,key=1,length=2", frame="dict")[0]
        self.assertEqual(found, (wanted["miss_ratio"], wanted["byte_miss_ratio"]))
        self.assertGreater(wanted["too_large"], 0)
        # As in libCacheSim an object of the threshold's size is too large: its ratios for seven objects of 100 to 700 bytes, each asked for 100 times.
        text = "".join(f"{at},{at % 7 + 1},{at % 7 * 100 + 100}\n" for at in range(700))
        sizes = lcs.TraceReader(self.trace("sizes.csv", text), lcs.TraceType.CSV_TRACE, params)
        for threshold, ratio in [(100, 1.0), (101, 0.858571), (300, 0.717143), (301, 0.575714), (700, 0.151429), (701, 0.01)]:
            found, _ = lcs.LRU(10_000, admissioner=lcs.SizeAdmissioner(threshold)).process_trace(sizes)
            self.assertAlmostEqual(found, ratio, 6)
        text = self.trace("a.txt", "".join(f"{at * at % 31}\n" for at in range(500)))
        params = lcs.ReaderInitParam(ignore_obj_size=True, cap_at_n_req=100)
        found = lcs.ARC(5).process_trace(lcs.TraceReader(text, lcs.TraceType.PLAIN_TXT_TRACE, params))
        self.assertEqual(found[0], futae.simulate(text, ["arc:5blocks"], requests=100, frame="dict")[0]["miss_ratio"])

    def test_shares_name_their_reader_and_no_limit_is_none(self):
        path = self.trace("a.csv", "".join(f"{at},k{at * at % 31},{1 + at % 31 * 10}\n" for at in range(500)))
        params = lcs.ReaderInitParam(time_field=1, obj_id_field=2, obj_size_field=3)
        reader = lcs.TraceReader(path, lcs.TraceType.CSV_TRACE, params)
        share = lcs.LRU(0.3, reader=reader).process_trace(reader)
        self.assertEqual(share, lcs.LRU(0.3).process_trace(lcs.TraceReader(path, lcs.TraceType.CSV_TRACE, params)))
        for limit in (0, -1):
            self.assertEqual(share, lcs.LRU(0.3).process_trace(reader, max_req=limit))
        params.cap_at_n_req = 0
        self.assertEqual(share, lcs.LRU(0.3).process_trace(reader))
        # libCacheSim counts shares of the reader that the cache was made with, and this one's bytes are not known here.
        other = lcs.TraceReader(self.trace("b.csv", "1,k1,10\n2,k2,20\n"), lcs.TraceType.CSV_TRACE, params)
        with self.assertRaises(futae.Error) as raised:
            lcs.LRU(0.3, reader=reader).process_trace(other)
        self.assertIn("cache_size=0.3", str(raised.exception))
        self.assertEqual(lcs.LRU(20, reader=reader).process_trace(other), (1.0, 1.0))
        # As text this one has an exponent.
        large = lcs.TraceReader(self.trace("c.csv", "1,k1,4000000000\n2,k2,300\n3,k2,300\n"), lcs.TraceType.CSV_TRACE, params)
        self.assertEqual(lcs.LRU(1e-7).process_trace(large)[0], 2 / 3)

    def test_what_is_not_here_is_named(self):
        text = self.trace("a.txt", "1\n2\n1\n")
        reader = lcs.TraceReader(text, lcs.TraceType.PLAIN_TXT_TRACE, lcs.ReaderInitParam(ignore_obj_size=True))
        sized = self.trace("a.csv", "1,k1,10\n2,k2,20\n")
        fields = lcs.ReaderInitParam(time_field=1, obj_id_field=2, obj_size_field=3)
        cache = lcs.LRU(1)
        cache.process_trace(reader)
        for act, part in [
            (lambda: cache.process_trace(reader), "make another"),
            (lambda: lcs.LRU(1).process_trace(reader, start_req=1), "start_req=1"),
            (lambda: lcs.LRU(0), "cache_size=0"),
            (lambda: lcs.LRU("1GiB"), "1GiB"),
            (lambda: lcs.LRU(1, admissioner=7), "no SizeAdmissioner"),
            (lambda: lcs.LRU(1, admissioner=lcs.SizeAdmissioner(1)).process_trace(reader), "ignore_obj_size"),
            (lambda: lcs.ARC(10).process_trace(lcs.TraceReader(sized, lcs.TraceType.CSV_TRACE, fields)), "policy arc"),
        ]:
            with self.assertRaises(futae.Error) as raised:
                act()
            self.assertIn(part, str(raised.exception))
        # The first ones of libCacheSim that are given by place are a binary format and a lifetime.
        for act in (lambda: lcs.LRU(1, default_ttl=9), lambda: lcs.LRU(1, 9), lambda: lcs.ReaderInitParam("<IQIq")):
            with self.assertRaises(TypeError):
                act()
        with self.assertRaises(AttributeError):
            fields.obj_size_feild = 3
        self.assertEqual(lcs.LRU(numpy.int64(5)).cache_size, 5)


if __name__ == "__main__":
    unittest.main()
