"""futae.simulate against the command line, which is in FUTAE_BINARY."""

import contextlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

import futae
import numpy
import pandas
import pyarrow

BINARY = os.environ["FUTAE_BINARY"]
PYTHON = pathlib.Path(__file__).resolve().parent.parent


def command(*arguments):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def report(*arguments):
    status, out, err = command("sim", "--json", *arguments)
    assert status == 0, err
    return json.loads(out)


def timeless(value):
    """Without what a clock measured."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key not in ("seconds", "read_seconds")}
    return [timeless(one) for one in value] if isinstance(value, list) else value


class AsTheCommandLine(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.trace = os.path.join(self.place.name, "some.csv")
        with open(self.trace, "w") as file:
            file.write("time,offset,length,kind\n")
            for at in range(5000):
                block = at * at * 7919 % 613
                file.write(f"{at},{block * 4096},{4096 * (1 + at % 3)},{'RW'[at % 5 == 0]}\n")
        self.map = "time=0:s,offset=1,length=2,kind=3"

    def same(self, arguments, *given, **options):
        wanted = report(*arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", futae.FutaeWarning)
            found = futae.simulate(*given, frame="report", **options)
        self.assertEqual(timeless(found), timeless(wanted))
        self.assertTrue(wanted["runs"][0]["requests"] > 0)

    def test_one_level(self):
        given = ["zipf(1.0):64MiB", "--level", "lru:1000blocks", "--requests", "100000", "--seed", "7"]
        wanted = report(*given)["runs"][0]
        frame = futae.simulate("zipf(1.0):64MiB", levels=["lru:1000blocks"], requests=100_000, seed=7)
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(len(frame), 1)
        # Not nearly equal: to the last bit.
        self.assertEqual(frame["hit_ratio"][0].hex(), wanted["levels"][0]["hit_ratio"].hex())
        self.assertEqual(frame["hit_ratio"][0].hex(), wanted["combined_hit_ratio"].hex())
        for key, value in {**wanted["levels"][0], **wanted}.items():
            self.assertIn(key, frame.columns)
            if isinstance(value, (int, float, str)) and key not in ("seconds", "levels"):
                self.assertEqual(frame[key][0], value, key)

    def test_reports(self):
        for arguments, options in [
            (["--level", "lru:10%", "--level", "exclusive:20%"], dict(levels=["lru:10%", "exclusive:20%"])),
            (["--level", "arc:500blocks", "--guests", "3"], dict(levels=[("arc", 500)], guests=3)),
            (["--policy", "lru,2q(k_in=0.3),opt", "--sizes", "1%,5%"],
             dict(policies=["lru", "2q(k_in=0.3)", "opt"], sizes=["1%", "5%"])),
            (["--level", "lru:1MiB", "--write-mode", "write-back", "--block", "8KiB", "--warmup", "10",
              "--latency", "upper=1us,store=100us"],
             dict(levels="lru:1MiB", write_mode="write-back", block=8192, warmup=10,
                  latency="upper=1us,store=100us")),
            (["--level", "linux(readahead=32):10%", "--level", "lru:20%"], dict(levels=["linux(readahead=32):10%", "lru:20%"])),
            (["--level", "lru:1%", "--level", "lru:5%", "--link", "notice"],
             dict(levels=["lru:1%", "lru"], sizes=["5%"], link="notice")),
        ]:
            with self.subTest(arguments=arguments):
                self.same(["uniform:16MiB", *arguments], "uniform:16MiB", **options)

    def test_traces(self):
        read = ["--columns", self.map]
        self.same([self.trace, "--level", "lru:100blocks", *read], self.trace, ["lru:100blocks"], columns=self.map)
        self.same([self.trace, "--policy", "opt,sieve", "--sizes", "1%,30%", "--view", "start", *read],
                  pathlib.Path(self.trace), policies=["opt", "sieve"], sizes=["1%", "30%"], view="start",
                  columns=self.map)
        self.same([self.trace, self.trace, "--level", "lru:50blocks", *read],
                  [self.trace, self.trace], ["lru:50blocks"], columns=self.map)

    def test_reading_ahead(self):
        levels = ["linux(readahead=32):100blocks", "lru:200blocks"]
        asked = ["--level", levels[0], "--level", levels[1]]
        self.same([self.trace, *asked, "--columns", self.map], self.trace, levels, columns=self.map)
        numbers = [first + at for first in range(0, 50_000, 97) for at in range(first % 7)]
        file = os.path.join(self.place.name, "numbers.txt")
        with open(file, "w") as out:
            out.writelines(f"{number}\n" for number in numbers)
        wanted = report(file, *asked)["runs"][0]
        found = futae.simulate(numpy.array(numbers), levels=levels, frame="report")["runs"][0]
        self.assertEqual(timeless(found), timeless(wanted))
        self.assertGreater(found["store_reads"], len(numbers))

    def test_what_is_asked_of_traces(self):
        read = ["--columns", self.map]
        for arguments, options in [
            (["--warmup", "10%", "--windows", "7"], dict(warmup="10%", windows=7)),
            (["--warmup", "20min", "--windows", "15min"], dict(warmup="20min", windows="15min")),
            (["--bounds"], dict(bounds=True)),
            (["--latency", "upper=1us,store=exp(100us)*2", "--clients", "3"],
             dict(latency="upper=1us,store=exp(100us)*2", clients=3)),
            (["--latency", "upper=1us,store=2s*1"], dict(latency="upper=1us,store=2s*1")),
        ]:
            with self.subTest(arguments=arguments):
                levels = ["lru:5%", "exclusive:10%"]
                self.same([self.trace, "--level", levels[0], "--level", levels[1], *read, *arguments],
                          self.trace, levels, columns=self.map, **options)
        for arguments, options in [
            (["--order", "turns"], dict(order="turns")),
            (["--order", "recorded", "--warmup", "30%"], dict(order="recorded", warmup="30%")),
            (["--think", "1ms", "--latency", "upper=1us,lower=10us,store=100us", "--warmup", "5%"],
             dict(think="1ms", latency="upper=1us,lower=10us,store=100us", warmup="5%")),
            (["--think", "recorded", "--latency", "store=1s"], dict(think="recorded", latency="store=1s")),
        ]:
            with self.subTest(arguments=arguments):
                self.same([self.trace, self.trace, "--level", "lru:50blocks", "--level", "lru:90blocks", *read, *arguments],
                          [self.trace, self.trace], ["lru:50blocks", "lru:90blocks"], columns=self.map, **options)

    def test_what_is_asked_of_workloads(self):
        self.same(["zipf(0.9):8MiB", "--level", "arc:10%", "--windows", "5", "--latency", "store=exp(1ms)*4", "--clients", "9"],
                  "zipf(0.9):8MiB", ["arc:10%"], windows=5, latency="store=exp(1ms)*4", clients=9)
        self.same(["zipf(0.9):8MiB", "loop:4MiB", "--level", "lru:10%", "--level", "lru:50%", "--windows", "3"],
                  ["zipf(0.9):8MiB", "loop:4MiB"], ["lru:10%", "lru:50%"], windows=3)

    def test_windows_are_of_arrays_and_tables(self):
        array = numpy.array([at * at * 7919 % 613 for at in range(5000)])
        run = futae.simulate(array, ["lru:5%"], windows=4, warmup="20%", bounds=False, frame="report")["runs"][0]
        self.assertEqual(run["warmup_requests"], 1000)
        self.assertEqual(sum(window["requests"] for window in run["windows"]), 4000)
        self.assertEqual(sum(window["served"][0]["reads"] for window in run["windows"]), run["levels"][0]["hits"])
        table = pyarrow.table({"time": numpy.arange(5000), "offset": array * 4096, "length": numpy.full(5000, 4096)})
        # Of a column that is called time the numbers are seconds.
        row = futae.simulate(table, ["lru:5%"], columns="time=0:s,offset=1,length=2", windows="1000s",
                             warmup="1000s", frame="dict")[0]
        self.assertEqual([window["requests"] for window in row["windows"]], [0, 1000, 1000, 1000, 1000])
        self.assertEqual([window["combined_hit_ratio"] for window in row["windows"][1:]],
                         [window["combined_hit_ratio"] for window in run["windows"]])

    def test_objects(self):
        read = ["--columns", self.map, "--objects", "--policy", "lru,gdsf"]
        for arguments, sizes, options in [
            (["--sizes", "1%,200000"], ["1%", 200_000], {}),
            (["--sizes", "1MiB", "--ttl", "10min", "--warmup", "30min", "--admit-size-max", "8192"], ["1MiB"],
             dict(ttl="10min", warmup="30min", admit_size_max=8192)),
            (["--sizes", "10%", "--ttl", "none", "--warmup", "5%", "--requests", "1000", "--seed", "3"], ["10%"],
             dict(ttl="none", warmup="5%", requests=1000, seed=3)),
        ]:
            with self.subTest(arguments=arguments):
                wanted = report(self.trace, *read, *arguments)
                asked = dict(policies=["lru", "gdsf"], sizes=sizes, columns=self.map, objects=True, **options)
                self.assertEqual(timeless(futae.simulate(self.trace, frame="report", **asked)), timeless(wanted))
                frame = futae.simulate(self.trace, **asked)
                self.assertEqual(list(frame["byte_miss_ratio"]), [run["byte_miss_ratio"] for run in wanted["runs"]])
                self.assertEqual(frame["footprint_bytes"][0], wanted["footprint_bytes"])
        table = pyarrow.table({"time": [0, 1, 2, 3], "offset": [1, 2, 1, 3], "length": [100, 900, 100, 50]})
        rows = futae.simulate(table, policies=["lru"], sizes=[950], objects=True, columns="time=0:s,key=1,length=2",
                              frame="dict")
        self.assertEqual([rows[0][key] for key in ("hits", "too_large", "evictions", "evicted_bytes")], [0, 0, 2, 1000])

    def test_what_does_not_go_together_is_named(self):
        given = dict(columns=self.map, levels=["lru:10%"])
        for options, part in [
            (dict(clients=2), "--clients is for --latency"),
            (dict(think="1ms"), "--think needs --latency"),
            (dict(think="1ms", latency="store=1us", windows=3), "--think cannot be used with --windows"),
            (dict(think="1ms", latency="store=1us", warmup="1h"), "give --warmup in requests or as a share"),
            (dict(clients=0, latency="store=1us"), "no client makes requests"),
            (dict(warmup="soon"), "neither requests"),
            (dict(warmup=0.5), "neither requests"),
            (dict(windows=0), "1 to 1048576 windows"),
            (dict(windows="1us"), "windows are too many"),
            (dict(bounds=True, warmup=5), "whole trace"),
            (dict(order="sorted"), "sorted"),
            (dict(ttl="1h"), "ttl is for objects=True"),
            (dict(objects=True, windows=3), "windows cannot be used"),
            (dict(objects=True, levels=["lru:10%", "lru:20%"]), "one level"),
            (dict(objects=True, levels=["arc:10%"]), "policy arc"),
            (dict(objects=True, admit_size_max="1%"), "--admit-size-max 1%"),
        ]:
            with self.subTest(options=options), self.assertRaises(futae.Error) as raised:
                futae.simulate(self.trace, **{**given, **options})
            self.assertIn(part, str(raised.exception))
        for source, options, part in [
            ("loop:4MiB", dict(warmup="10%"), "give --warmup in requests"),
            ("loop:4MiB", dict(windows="1h"), "need traces with times"),
            ("loop:4MiB", dict(bounds=True), "--bounds is for traces"),
            ("loop:4MiB", dict(objects=True), "for a trace or a table"),
            (numpy.arange(9), dict(objects=True), "for a trace or a table"),
            (numpy.arange(9), dict(order="recorded"), "arrays have no times"),
            ([self.trace, self.trace], dict(objects=True, columns=self.map), "one trace"),
        ]:
            with self.subTest(options=options), self.assertRaises(futae.Error) as raised:
                futae.simulate(source, ["lru:10%"], **options)
            self.assertIn(part, str(raised.exception))

    def test_names_may_be_bytes(self):
        name = os.path.join(self.place.name.encode(), b"\xff\xfe.csv")
        os.link(self.trace, name)
        for source in [name, os.fsdecode(name), pathlib.Path(os.fsdecode(name))]:
            frame = futae.simulate(source, ["lru:5%"], columns=self.map, frame="dict")
            self.assertEqual(frame[0]["hits"], futae.simulate(self.trace, ["lru:5%"], columns=self.map, frame="dict")[0]["hits"])

    def test_runs_are_rows(self):
        frame = futae.simulate("loop:4MiB", levels=["lru", "exclusive:500blocks"], sizes=[100, 200])
        self.assertEqual(list(frame["level_0_capacity_blocks"]), [100, 200])
        self.assertEqual(list(frame["level_1_capacity_blocks"]), [500, 500])
        rows = futae.simulate("loop:4MiB", [["lru:10blocks"], ["fifo:20blocks"]], frame="dict")
        self.assertEqual([row["policy"] for row in rows], ["lru", "fifo"])
        self.assertEqual([row["capacity_blocks"] for row in rows], [10, 20])

    def test_no_requests_have_no_ratio(self):
        frame = futae.simulate("loop:4MiB", ["lru:10blocks"], requests=0)
        self.assertTrue(frame["hit_ratio"][0] is None or math.isnan(frame["hit_ratio"][0]))

    def test_errors_are_those_of_the_command_line(self):
        trace = os.path.join(self.place.name, "bad.csv")
        with open(trace, "w") as file:
            file.write("1,4096,4096,R\n2,oops,4096,R\n")
        for source, level, options in [
            ("zipf(1.0):64MiB", "lur:10blocks", {}),
            ("zipf(1.0):64MiB", "lru", {}),
            ("zipf(1.0):64MiB", "lru:0blocks", {}),
            ("zipf(1.0):64MiB", "lru:10blocks", {"block": "5KiB"}),
            ("zipf(1.0):64MiB", "lru:10blocks", {"link": "rope"}),
            ("zipf(1.0):64MiB", "lru:10blocks", {"format": "csv"}),
            ("nowhere.trace", "lru:10blocks", {}),
            ("zipf(1.0", "lru:10blocks", {}),
            (trace, "lru:10blocks", {"columns": self.map}),
            (trace, "lru:10blocks", {"format": "no-such"}),
            (self.place.name, "lru:10blocks", {}),
        ]:
            with self.subTest(source=source, level=level, options=options):
                flags = [f"--{key}={value}" for key, value in options.items()]
                status, _, err = command("sim", source, "--level", level, *flags)
                self.assertNotEqual(status, 0)
                with self.assertRaises(futae.Error) as raised:
                    futae.simulate(source, [level], **options)
                message = str(raised.exception).replace("format is for", "--format is for")
                # The command line takes several sizes of a level, to simulate each.
                err = err.replace(" or POLICY:SIZE,SIZE", "")
                self.assertIn(" ".join(message.split()), " ".join(err.split()))

    def test_wrong_arguments_are_named(self):
        for given, part in [
            (dict(), "either levels"),
            (dict(levels=[]), "no level"),
            (dict(levels=[3]), "level 3"),
            (dict(levels=7), "levels=7"),
            (dict(levels=[("lru", 1.5)]), "1.5 is no size"),
            (dict(levels=["lru:10blocks"], sizes=["1%"]), "size of its own"),
            (dict(levels=["lru"], sizes=[]), "sizes has no size"),
            (dict(policies=["lru"]), "need sizes"),
            (dict(levels=["lru:10blocks", ["lru:1%"]]), "lists of levels"),
            (dict(levels=["lru:10blocks"], frame="arrow"), "'arrow'"),
        ]:
            with self.subTest(given=given), self.assertRaises(futae.Error) as raised:
                futae.simulate("loop:4MiB", **given)
            self.assertIn(part, str(raised.exception))

    def test_warnings(self):
        with self.assertWarnsRegex(futae.FutaeWarning, "name the upper level first"):
            futae.simulate("loop:4MiB", ["exclusive:100blocks"])


class WhileItRuns(unittest.TestCase):
    """Of simulations that would take minutes."""

    LONG = dict(source="zipf(1.0):1GiB", levels=["arc:10000blocks"], requests=10**9)

    def test_others_run_and_an_exception_of_progress_ends_it(self):
        class Enough(Exception):
            pass

        turns, parts = [], []
        over = threading.Event()

        def other():
            while not over.is_set():
                turns.append(len(parts))

        def progress(part):
            parts.append(part)
            if len(parts) == 3:
                raise Enough

        thread = threading.Thread(target=other)
        thread.start()
        try:
            with self.assertRaises(Enough):
                futae.simulate(**self.LONG, progress=progress)
            with self.assertRaises(Enough):
                parts.clear()
                runs = dict(self.LONG, levels=["arc"])
                futae.simulate(**runs, sizes=[1000, 2000, 3000, 4000], threads=3, progress=progress)
        finally:
            over.set()
            thread.join()
        self.assertTrue({1, 2} <= set(turns), "another thread of Python ran between two calls")
        self.assertTrue(all(0 <= part <= 1 for part in parts))

    def test_a_process_that_progress_forks_ends(self):
        for how, status, said in [
            ("None", 1, "os._exit()"),
            ("sys.exit(7)", 7, ""),
            ("1 / 0", 1, "ZeroDivisionError"),
        ]:
            script = (
                "import futae, os, signal, sys\n"
                "parent = os.getpid()\n"
                "def progress(part):\n"
                "    if os.getpid() != parent:\n"
                "        return\n"
                "    child = os.fork()\n"
                "    if child == 0:\n"
                # It ends a process that waits.
                "        signal.alarm(20)\n"
                f"        return {how}\n"
                "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
                "    sys.exit()\n"
                f"futae.simulate(**{self.LONG!r}, progress=progress)\n"
            )
            with self.subTest(how=how):
                words = [sys.executable, "-W", "ignore", "-c", script]
                ended = subprocess.run(words, capture_output=True, text=True, timeout=120)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertEqual(ended.stdout, f"{status}\n", ended.stderr)
                self.assertIn(said, ended.stderr)

    def test_progress_ends_with_one(self):
        parts = []
        futae.simulate("loop:4MiB", ["lru:10blocks"], progress=parts.append)
        self.assertEqual(parts[-1], 1.0)

    def test_an_interrupt_ends_it(self):
        script = (
            # A program that a shell started in the background ignores SIGINT, and so do its children.
            "import futae, signal\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "seen = []\n"
            "def progress(part):\n"
            "    seen or print('begun', flush=True)\n"
            "    seen.append(part)\n"
            f"futae.simulate(**{self.LONG!r}, progress=progress)\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self.assertEqual(child.stdout.readline(), "begun\n")
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=60)
        finally:
            child.kill()
        self.assertTrue(err.rstrip().endswith("KeyboardInterrupt"), err)
        self.assertNotIn("panicked", err)


@contextlib.contextmanager
def mypy_settings():
    """A file of settings: what has no types of its own is not looked into."""
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "mypy.ini")
        with open(path, "w") as file:
            file.write("[mypy]\nignore_missing_imports = True\ncache_dir = /dev/null\n")
        yield path


class Package(unittest.TestCase):
    def test_policies(self):
        status, out, _ = command("policies", "--json")
        self.assertEqual(status, 0)
        self.assertEqual(futae.policies(frame="dict"), json.loads(out)["policies"])

    def test_the_version_is_that_of_the_command_line(self):
        self.assertIn(futae.__version__, command("--version")[1])

    def test_types_are_there_for_every_name(self):
        directory = pathlib.Path(futae.__file__).parent
        self.assertTrue((directory / "py.typed").exists())
        stub = (directory / "__init__.pyi").read_text()
        for name in futae.__all__:
            self.assertRegex(stub, rf"(?m)^(def|class|@overload\ndef) {name}\b|^{name}:")
            self.assertTrue(name.startswith("__") or getattr(futae, name).__doc__, name)

    def test_the_types_are_those_of_the_package(self):
        # Each name, parameter and default value of the stubs beside those of the package.
        with mypy_settings() as settings:
            done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", settings, "--ignore-missing-stub",
                                   "--allowlist", PYTHON / "tests/not_in_stubs.txt", "futae"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_program_is_checked_by_its_types(self):
        # What is wrong is marked: a mark that nothing needs is an error, too.
        with mypy_settings() as settings:
            done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", settings, "--strict", PYTHON / "tests/typed.py"],
                                  capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_pages_run(self):
        for page in [PYTHON / "README.md", PYTHON.parent / "docs/how-to/python.md"]:
            blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
            self.assertTrue(blocks, page)
            # One room for a page, as for one who types it, in a directory of its own.
            room = {"print": lambda *_, **__: None}
            with tempfile.TemporaryDirectory() as place, self.subTest(page=page):
                before = os.getcwd()
                os.chdir(place)
                try:
                    for block in blocks:
                        exec(block, room)
                finally:
                    os.chdir(before)
            self.assertGreater(len(room["frame"]), 0)

    def test_without_pandas_rows_are_dictionaries(self):
        script = (
            "import sys; sys.modules['pandas'] = sys.modules['polars'] = None\n"
            "import futae; print(futae.simulate('loop:4MiB', ['lru:10blocks'])[0]['hit_ratio'])"
        )
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        self.assertEqual(out, "0.0\n")


if __name__ == "__main__":
    unittest.main()
