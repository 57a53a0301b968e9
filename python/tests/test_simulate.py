"""futae.simulate against the command line, which is in FUTAE_BINARY."""

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
import pandas

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
