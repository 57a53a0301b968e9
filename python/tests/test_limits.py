"""What is refused before the work begins, plug-ins, and Python's lock while a class is a policy."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import futae

ROOT = pathlib.Path(os.environ["FUTAE_ROOT"])

# Arrow reads this table on threads of its own, in Python, while the simulation waits for its batches.
ARROW_THREADS = '''
import io
import futae
import pyarrow, pyarrow.dataset, pyarrow.fs, pyarrow.parquet

table = pyarrow.table({"offset": [at * at % 997 * 4096 for at in range(60_000)]})
written = io.BytesIO()
pyarrow.parquet.write_table(table, written, row_group_size=1000)
nothing = lambda *_, **__: None

class Files(pyarrow.fs.FileSystemHandler):
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = nothing
    open_output_stream = open_append_stream = get_file_info_selector = nothing

    def get_type_name(self):
        return "one"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return [pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File, size=len(written.getvalue())) for path in paths]

    def open_input_file(self, path):
        return pyarrow.PythonFile(io.BytesIO(written.getvalue()), mode="r")

    open_input_stream = open_input_file

class Fifo:
    def __init__(self, slots):
        self.blocks = {}

    def miss(self, blocks):
        self.blocks.update(dict.fromkeys(blocks))

    def evict(self, incoming):
        block = next(iter(self.blocks))
        del self.blocks[block]
        return block

data = pyarrow.dataset
options = data.ParquetFragmentScanOptions(pre_buffer=False)
files = data.dataset("a.parquet", filesystem=pyarrow.fs.PyFileSystem(Files()), format="parquet")

def misses(policy):
    scanner = files.scanner(batch_size=1000, batch_readahead=1, fragment_readahead=1, fragment_scan_options=options)
    return futae.simulate(scanner.to_reader(), policies=[policy], sizes=[100], frame="dict")[0]["misses"]

assert misses("fifo") == misses(Fifo) > 0
'''


class SeldomAsked:
    """A policy of a cache that holds all blocks."""

    def __init__(self, slots):
        pass

    def miss(self, blocks):
        pass

    def evict(self, incoming):
        raise AssertionError("all blocks fit")


class Locks(unittest.TestCase):
    def test_a_class_that_is_seldom_asked_leaves_the_lock_to_others(self):
        parts = []
        futae.simulate("loop:4MiB", policies=[SeldomAsked], sizes=["100%"], requests=60_000_000, progress=parts.append)
        self.assertLess(min(parts), 1, "it was told something before the end")

    def test_a_table_that_is_read_on_other_threads_of_python(self):
        # A child, which can be killed if it waits for ever.
        done = subprocess.run([sys.executable, "-c", ARROW_THREADS], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class PlugIns(unittest.TestCase):
    def test_a_curve_of_a_plug_in(self):
        if shutil.which("cc") is None:
            self.skipTest("no C compiler")
        with tempfile.TemporaryDirectory() as place:
            library = os.path.join(place, "liblru.so")
            include = ROOT / "crates/futae-plugin/include"
            source = ROOT / "examples/plugins/lru.c"
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", "-o", library, source], check=True)
            # The first thing that the process asks of futae.
            code = f"""
import futae
curves = [futae.mrc("zipf(1.0):1MiB", policy, points=4, frame="dict") for policy in ({library!r}, "lru")]
own, usual = ([round(point["miss_ratio"], 9) for point in curve] for curve in curves)
assert own == usual and usual[0] > usual[-1]
"""
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


class Refused(unittest.TestCase):
    def test_what_no_work_can_come_of(self):
        given = {"levels": ["lru:5%"], "requests": 1000}
        queued = dict(given, latency="store=exp(1us)*4")
        plan = {"workloads": ["loop:1MiB"], "policies": ["lru"], "sizes": ["5%"]}
        for study, arguments, options, part in [
            (futae.simulate, ["loop:1MiB"], dict(given, guests=2**32), "guests=4294967296 is more than 4294967295"),
            (futae.simulate, ["loop:1MiB"], dict(queued, clients=2**32), "clients=4294967296 is more than"),
            (futae.mrc, ["loop:1MiB"], dict(shards=0.5, repeats=65), "repeats is from 1 to 64"),
            (futae.mrc, ["loop:1MiB"], dict(shards=0.5, repeats=0), "repeats is from 1 to 64"),
            (futae.locality, ["loop:1MiB"], dict(bins=1_000_001), "bins is from 1 to 1000000"),
            (futae.sweep, [plan], dict(threads=-1), "threads=-1 is no whole number"),
            (futae.sweep, [plan], dict(frame="report"), "frame 'report' is none of 'pandas', 'polars' and 'dict'"),
            (futae.sweep, [dict(plan, view="start")], {}, "view is for trace files, and the plan has none"),
        ]:
            with self.subTest(options=options), self.assertRaisesRegex(futae.Error, part):
                study(*arguments, **options)

    def test_a_frame_that_is_none_costs_no_work(self):
        plan = {"workloads": ["loop:1MiB"], "policies": ["lru"], "sizes": ["5%"]}
        given = {"frame": "panda", "progress": lambda part: self.fail("the work has begun")}
        for study in [
            lambda: futae.simulate("loop:1MiB", levels=["lru:5%"], **given),
            lambda: futae.mrc("loop:1MiB", **given),
            lambda: futae.locality("loop:1MiB", **given),
            lambda: futae.sweep(plan, **given),
            lambda: futae.policies("panda"),
        ]:
            with self.assertRaisesRegex(futae.Error, "frame 'panda' is none of"):
                study()

    def test_clients_cost_no_memory_before_they_ask(self):
        given = dict(levels=["lru:5%"], requests=1000, latency="store=exp(1us)*4", frame="dict")
        many = futae.simulate("loop:1MiB", clients=2**32 - 1, **given)[0]["latencies"]
        some = futae.simulate("loop:1MiB", clients=100_000, **given)[0]["latencies"]
        self.assertEqual(dict(many, clients=None), dict(some, clients=None))

    def test_more_points_than_blocks_are_a_point_for_each(self):
        curve = futae.mrc("loop:1MiB", points=2**62, frame="dict")
        self.assertEqual([point["cache_blocks"] for point in curve], list(range(1, 257)))

    def test_a_cache_that_hits_nothing_is_warned_of_in_a_sweep_too(self):
        plan = {"workloads": ["loop:1MiB"], "policies": ["exclusive"], "sizes": ["5%"]}
        with self.assertWarnsRegex(futae.FutaeWarning, "exclusive:5% keeps only"):
            futae.sweep(plan)


if __name__ == "__main__":
    unittest.main()
