"""futae.sweep and futae.locality against the command line, and on a cluster of Dask."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
import warnings

import futae
import pandas

BINARY = os.environ["FUTAE_BINARY"]

PLAN = """
traces = ["a.csv"]
workloads = ["zipf(0.8):16MiB"]
policies = ["lru", "s3-fifo"]
sizes = ["1%", "10%"]
levels = [["lru:1%,5%", "exclusive:10%"]]
seeds = [1, 2]
requests = 20000
columns = "time=0:s,offset=1,length=2,kind=3"
"""
CELLS = 2 * 2 * (2 * 2 + 2)


def cluster():
    """Two workers of one thread each, on this machine and for this program alone."""
    from distributed import LocalCluster

    return LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)


def wait_until(is_so):
    """Waits for a condition, at most a minute."""
    end = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError("it has not come about within a minute")
        time.sleep(0.01)


class Sweeps(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name
        self.plan = os.path.join(self.place, "plan.toml")
        with open(self.plan, "w") as file:
            file.write(PLAN)
        with open(os.path.join(self.place, "a.csv"), "w") as file:
            for at in range(5000):
                file.write(f"{at},{at * at * 7919 % 613 * 4096},4096,{'RW'[at % 5 == 0]}\n")

    def path(self, *names):
        return os.path.join(self.place, *names)

    def test_a_summary_is_over_the_seeds(self):
        plan = {"workloads": ["zipf(0.8):16MiB"], "policies": ["lru", "sieve"], "sizes": ["1%", "10%"], "seeds": [1, 2, 3],
                "requests": 20_000}
        table = futae.sweep(plan, out=self.path("s"))
        summary = futae.sweep(plan, out=self.path("s"), summary=True)
        self.assertEqual(len(summary), 4)
        of_seeds = table.groupby(["policy", "capacity_blocks"], sort=False).hit_ratio
        for found, mean, deviation in zip(summary.itertuples(), of_seeds.mean(), of_seeds.std()):
            self.assertEqual(found.seeds, 3)
            self.assertAlmostEqual(found.hit_ratio_mean, mean, 12)
            # Student's t of 95 % for 2 degrees of freedom.
            self.assertAlmostEqual(found.hit_ratio_half_width, 4.303 * deviation / 3**0.5, 5)
            self.assertGreater(found.hit_ratio_half_width, 0)
        written = pandas.read_csv(self.path("s", "summary.csv"))
        self.assertEqual(list(written.hit_ratio_mean), list(summary.hit_ratio_mean))

    def test_objects_are_those_of_simulate(self):
        plan = {"traces": [self.path("a.csv")], "policies": ["lru", "gdsf"], "sizes": ["10%", "500000"], "objects": True,
                "columns": "time=0:s,offset=1,length=2,kind=3"}
        table = futae.sweep(plan)
        alone = futae.simulate(self.path("a.csv"), policies=["lru", "gdsf"], sizes=["10%", "500000"], objects=True,
                               columns="time=0:s,offset=1,length=2,kind=3")
        self.assertEqual(len(table), 4)
        for column in ["policy", "capacity_bytes", "hits", "byte_miss_ratio", "objects", "trace_digest"]:
            self.assertEqual(list(table[column]), list(alone[column]), column)
    def command(self, out):
        subprocess.run([BINARY, "sweep", self.plan, "--out", self.path(out)], check=True, capture_output=True)
        return self.csv(out)

    def csv(self, out):
        with open(self.path(out, "results.csv"), "rb") as file:
            return file.read()

    def files(self, out):
        """Of each cell that is done, the file: another number if it was written again."""
        cells = self.path(out, "cells")
        return {name: os.stat(os.path.join(cells, name)).st_ino for name in os.listdir(cells)}

    def test_as_the_command_line(self):
        wanted = self.command("theirs")
        parts = []
        frame = futae.sweep(self.plan, out=self.path("ours"), progress=parts.append)
        self.assertEqual(self.csv("ours"), wanted)
        self.assertEqual(parts[-1], 1.0)
        table = pandas.read_csv(self.path("theirs", "results.csv"), keep_default_na=False, na_values=[""])
        self.assertEqual(frame.cell.nunique(), CELLS)
        pandas.testing.assert_frame_equal(frame, table, check_dtype=False, check_exact=True)
        pandas.testing.assert_frame_equal(futae.sweep(self.plan, threads=1), frame)

    def test_goes_on_with_what_the_command_line_began(self):
        wanted = self.command("out")
        for name in ("000003.json", "000017.json"):
            os.remove(self.path("out", "cells", name))
        os.remove(self.path("out", "results.csv"))
        before = self.files("out")
        futae.sweep(self.plan, out=self.path("out"))
        after = self.files("out")
        self.assertEqual(self.csv("out"), wanted)
        self.assertEqual(len(after), CELLS)
        self.assertEqual({name: after[name] for name in before}, before)
        with self.assertRaisesRegex(futae.Error, "another plan"):
            futae.sweep({"workloads": ["loop:1MiB"], "policies": ["lru"], "sizes": ["1%"]}, out=self.path("out"))

    def test_a_cell_that_fails_costs_itself_only(self):
        plan = {"traces": ["gone.csv"], "workloads": ["loop:1MiB"], "policies": ["lru", "fifo"], "sizes": ["50%"]}
        with self.assertWarnsRegex(futae.FutaeWarning, "gone.csv under lru:50%, seed 1 and 1 more failed"):
            frame = futae.sweep(plan)
        self.assertEqual(list(frame.source), ["loop:1MiB"] * 2)
        with self.assertWarns(futae.FutaeWarning), self.assertRaisesRegex(futae.Error, "every cell failed"):
            futae.sweep(dict(plan, workloads=[]))

    def test_what_is_no_plan_is_refused(self):
        for plan, part in [
            ({"polices": []}, "polices"),
            ({"workloads": ["loop:1MiB"], "policies": [len], "sizes": ["1%"]}, "JSON does not have"),
            (self.path("none.toml"), "none.toml"),
            ({}, "nothing to simulate"),
        ]:
            with self.subTest(plan=plan), self.assertRaisesRegex(futae.Error, part):
                futae.sweep(plan)

    def test_on_a_cluster_of_which_a_worker_is_lost(self):
        from distributed import Client

        wanted = futae.sweep(self.plan)
        with cluster() as workers, Client(workers) as client:
            pandas.testing.assert_frame_equal(futae.sweep(self.plan, client=client), wanted)
            victim, *_ = client.run(os.getpid).values()
            before = {}

            def progress(part):
                if not before:
                    before.update(self.files("out"))
                    os.kill(victim, signal.SIGKILL)

            frame = futae.sweep(self.plan, out=self.path("out"), client=client, progress=progress)
            after = self.files("out")
        pandas.testing.assert_frame_equal(frame, wanted)
        self.assertTrue(0 < len(before) < CELLS, "it was killed while there was work")
        self.assertEqual({name: after[name] for name in before}, before, "what was done is not done again")
        self.assertEqual(self.csv("out"), self.command("theirs"))

    def test_on_a_cluster_that_loses_results_before_they_were_fetched(self):
        from distributed import Client

        wanted = futae.sweep(self.plan)
        lost = []
        with cluster() as workers, Client(workers) as client:
            pids = client.run(os.getpid)

            def states():
                return {state.status for state in client.futures.values()}

            def progress(part):
                if lost:
                    return
                wait_until(lambda: states() == {"finished"})
                # The worker that holds more than the one result that has been fetched.
                held = {worker: keys for worker, keys in client.has_what().items() if len(keys) > 1}
                lost.extend(held[next(iter(held))])
                os.kill(pids[next(iter(held))], signal.SIGKILL)
                wait_until(lambda: states() != {"finished"})

            frame = futae.sweep(self.plan, client=client, progress=progress)
        self.assertGreater(len(lost), 1)
        pandas.testing.assert_frame_equal(frame, wanted)

    def test_cells_that_fail_on_a_cluster(self):
        from distributed import Client

        plan = {"traces": ["gone.csv"], "workloads": ["loop:1MiB"], "policies": ["lru", "fifo"], "sizes": ["50%"]}
        with cluster() as workers, Client(workers) as client:
            with self.assertWarnsRegex(futae.FutaeWarning, "gone.csv under (fifo|lru):50%, seed 1"):
                frame = futae.sweep(plan, client=client)
            with self.assertRaisesRegex(futae.Error, "threads"):
                futae.sweep(plan, client=client, threads=2)
        self.assertEqual(list(frame.source), ["loop:1MiB"] * 2)


class Locality(unittest.TestCase):
    def test_as_the_command_line(self):
        options = ["--level", "lru:1000blocks", "--requests", "50000", "--bins", "7", "--seed", "3", "--json"]
        done = subprocess.run([BINARY, "locality", "uniform:16MiB", *options], capture_output=True, text=True, check=True)
        wanted = json.loads(done.stdout)
        given = dict(levels=[("lru", 1000)], requests=50_000, bins=7, seed=3)
        self.assertEqual(futae.locality("uniform:16MiB", **given, frame="report"), wanted)
        frame = futae.locality("uniform:16MiB", **given)
        self.assertEqual(len(frame), 14)
        below = frame[frame.place == wanted["taps"][1]["place"]]
        self.assertEqual(list(below.share), [one["share"] for one in wanted["taps"][1]["bins"]])
        self.assertTrue((below.gap_bytes == wanted["taps"][1]["gap_bytes"]).all() and below.gap_bytes.iloc[0] > 0)

    def test_what_is_refused(self):
        for given, part in [
            (dict(bins=0), "bins"),
            (dict(warmup=10**9), "leaves none"),
            (dict(levels=["lur:10blocks"]), "lru"),
            (dict(format="msr"), "format is for trace files"),
        ]:
            with self.subTest(given=given), warnings.catch_warnings(), self.assertRaisesRegex(futae.Error, part):
                futae.locality("uniform:16MiB", **given)


if __name__ == "__main__":
    unittest.main()
