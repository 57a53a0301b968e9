"""futae.Table: the memory of a trace as NumPy and Arrow see it, which is one and the same."""

import gc
import io
import os
import struct
import sys
import tempfile
import threading
import time
import unittest

import futae
import numpy
import pandas
import polars
import pyarrow
from futae._traces import _buffer_of

MAP = "time=0:s,offset=1,length=2,kind=3"
# Not a multiple of eight, so that the last byte of bits is not full.
REQUESTS = 70_003


class OfAFile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.place = place.name
        path = os.path.join(place.name, "some.csv")
        with open(path, "w") as file:
            for at in range(REQUESTS):
                file.write(f"{at},{at * 7919 % 613 * 4096},{4096 * (1 + at % 3)},{'RW'[at % 5 == 0]}\n")
        cls.trace = futae.Trace(path, columns=MAP)
        cls.table = cls.trace.table()

    def test_columns_are_those_of_to_numpy(self):
        whole = self.trace.to_numpy()
        self.assertEqual(self.table.names, list(whole.dtype.names))
        self.assertEqual(len(self.table), REQUESTS)
        for name in self.table.names:
            column = numpy.asarray(self.table[name])
            self.assertEqual(column.dtype, whole.dtype[name])
            self.assertTrue((column == whole[name]).all(), name)
        with self.assertRaises(KeyError):
            self.table["nothing"]

    def test_numpy_does_not_copy_and_cannot_write(self):
        for name in self.table.names:
            first, second = numpy.asarray(self.table[name]), numpy.asarray(self.table[name])
            self.assertEqual(first.ctypes.data, second.ctypes.data)
            self.assertFalse(first.flags.owndata or first.flags.writeable)
            with self.assertRaises(TypeError):
                io.BytesIO(b"12345678").readinto(self.table[name])

    def test_arrow_has_the_memory_that_numpy_has(self):
        taken = pyarrow.table(self.table)
        taken.validate(full=True)
        self.assertEqual(taken.column_names, self.table.names)
        for name in self.table.names:
            ours = numpy.asarray(self.table[name])
            for array in (taken[name].chunk(0), pyarrow.array(self.table[name])):
                self.assertEqual(array.null_count, 0)
                self.assertTrue((array.to_numpy(zero_copy_only=False) == ours).all(), name)
                if name != "is_write":  # bits in Arrow, bytes in NumPy
                    self.assertEqual(array.buffers()[1].address, ours.ctypes.data)
        again = pyarrow.table(self.table)["is_write"].chunk(0)
        self.assertEqual(again.buffers()[1].address, taken["is_write"].chunk(0).buffers()[1].address)

    def test_frames_take_it(self):
        whole = self.trace.to_numpy()
        for frame in (polars.DataFrame(self.table), pandas.DataFrame.from_arrow(self.table)):
            for name in self.table.names:
                self.assertTrue((frame[name].to_numpy() == whole[name]).all(), name)

    def test_the_memory_outlives_the_table(self):
        table = self.trace.table()
        column, arrow, schema = numpy.asarray(table["offset_bytes"]), pyarrow.table(table), table.__arrow_c_array__()
        wanted = column.tolist()
        del table
        gc.collect()
        self.trace.table()
        self.assertEqual(column.tolist(), wanted)
        self.assertEqual(arrow["offset_bytes"].to_pylist(), wanted)
        del column, arrow, schema
        gc.collect()

    def test_no_time_is_null(self):
        path = os.path.join(self.place, "numbers.ids")
        with open(path, "w") as file:
            file.write("3\n4\n3\n")
        table = futae.Trace(path).table()
        self.assertEqual(numpy.asarray(table["time_us"]).tolist(), [-1] * 3)
        taken = pyarrow.table(table)
        taken.validate(full=True)
        self.assertEqual(taken["time_us"].to_pylist(), [None] * 3)
        self.assertEqual(taken["is_write"].to_pylist(), [False] * 3)

    def test_a_table_has_all_that_a_simulation_of_the_file_asks_for(self):
        path = os.path.join(self.place, "objects.csv")
        with open(path, "w") as file:
            file.write("time,key,size,ttl,latency_us\n")
            file.writelines(f"{at},k{at * at % 101},{100 + at * at % 101 * 7},{5 + at % 60},{at % 9}\n" for at in range(1000))
        trace = futae.Trace(path)
        table = trace.table()
        self.assertEqual(table.names[1], "key")
        self.assertEqual(numpy.asarray(table["ttl_s"]).tolist(), [5 + at % 60 for at in range(1000)])
        self.assertEqual(numpy.asarray(table["latency_us"]).tolist(), [at % 9 for at in range(1000)])
        found = [
            futae.simulate(source, policies=["lru"], sizes=[20000], objects=True, warmup=0, frame="dict")[0]["hits"]
            for source in (path, table, pandas.read_csv(path))
        ]
        self.assertEqual(found, found[:1] * 3)

    def test_sizes_of_objects_are_those_of_the_file(self):
        path = os.path.join(self.place, "some.oracleGeneral")
        requests = [(at, at * at % 101, 100 + at * at % 101 * 7) for at in range(1000)]
        with open(path, "wb") as file:
            for time_s, key, size in requests:
                file.write(struct.pack("<IQIq", time_s, key, size, -1))
        table = futae.Trace(path).table()
        self.assertEqual(numpy.asarray(table["length_bytes"]).tolist(), [size for _, _, size in requests])
        found = [
            futae.simulate(source, policies=["lru"], sizes=[20000], objects=True, warmup=0, frame="dict")[0]["hits"]
            for source in (path, table)
        ]
        self.assertEqual(*found)

    def test_columns_and_arrow_arrays_are_simulated_where_they_are(self):
        column = self.table["offset_bytes"]
        taken = pyarrow.table(self.table)["offset_bytes"]
        ours = numpy.asarray(column).ctypes.data
        wanted = futae.simulate(numpy.array(column), levels=["lru:50blocks"], frame="report")
        for source in (column, taken, taken.chunk(0), polars.DataFrame(self.table)["offset_bytes"]):
            with self.subTest(source=type(source)):
                self.assertEqual(numpy.asarray(_buffer_of(source)).ctypes.data, ours)
                found = futae.simulate(source, levels=["lru:50blocks"], frame="report")
                self.assertEqual(found["runs"][0]["levels"], wanted["runs"][0]["levels"])
        halves = pyarrow.chunked_array([taken.chunk(0)[:100], taken.chunk(0)[100:]])
        found = futae.simulate(halves, levels=["lru:50blocks"], frame="report")
        self.assertEqual(found["runs"][0]["levels"], wanted["runs"][0]["levels"])

    def test_other_threads_run_while_a_table_is_read(self):
        # With so long an interval, another thread runs only if this one lets it.
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        ticks, is_over = [0], []

        def tick():
            while not is_over:
                ticks[0] += 1
                time.sleep(0)

        other = threading.Thread(target=tick)
        other.start()
        self.addCleanup(other.join)
        self.addCleanup(is_over.append, True)
        sys.setswitchinterval(1000)
        before = ticks[0]
        # Whether the system gives the other thread a processor meanwhile is up to the system.
        for _ in range(100):
            self.trace.table()
            if ticks[0] > before:
                break
        ran = ticks[0] - before
        sys.setswitchinterval(interval)
        self.assertGreater(ran, 0)


if __name__ == "__main__":
    unittest.main()
