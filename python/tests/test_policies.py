"""Policies written in Python, and arrays as traces."""

import array
import functools
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections import OrderedDict

import futae
import numpy
import pandas
import pyarrow

BINARY = os.environ["FUTAE_BINARY"]
WORKLOAD = "zipf(1.0,writes=0.2):16MiB"


class Lru:
    def __init__(self, slots):
        self.order = OrderedDict()

    def miss(self, blocks):
        self.order.update(dict.fromkeys(blocks))

    def hit(self, blocks):
        for block in blocks:
            self.order.move_to_end(block)

    def evict(self, incoming):
        return self.order.popitem(last=False)[0]

    def remove(self, block):
        del self.order[block]


class Fifo:
    def __init__(self, slots):
        self.order = OrderedDict()

    def miss(self, blocks):
        self.order.update(dict.fromkeys(blocks))

    def evict(self, incoming):
        return self.order.popitem(last=False)[0]


class LruAhead(Lru):
    evict = None

    def victims(self, count):
        return list(itertools.islice(self.order, count))

    def evicted(self, blocks):
        for block in blocks:
            del self.order[block]


class FifoAhead(Fifo):
    evict = None
    victims = LruAhead.victims
    evicted = LruAhead.evicted


def misses(source=WORKLOAD, **arguments):
    arguments.setdefault("requests", 50_000)
    report = futae.simulate(source, frame="report", **arguments)
    return [[level["misses"] for level in run["levels"]] for run in report["runs"]]


class Policies(unittest.TestCase):
    def test_a_class_counts_as_the_policy_of_the_registry_does(self):
        for known, own in [("lru", Lru), ("fifo", Fifo)]:
            found = misses(policies=[known, own], sizes=[1, 100, "40%"])
            self.assertEqual(found[:3], found[3:])
            self.assertGreater(found[0][0], found[2][0])
        below = [misses(levels=["fifo:100blocks", (policy, 500)], guests=2) for policy in ("lru", Lru)]
        self.assertEqual(*below)
        frame = futae.simulate(WORKLOAD, levels=[(Lru, 100)], requests=1000, frame="dict")
        self.assertEqual(frame[0]["policy"], "python/Lru")

    def test_a_class_inside_a_policy_orders_its_blocks(self):
        for outer, parameters in (("exclusive", {}), ("exclusive", {"keep_served": True}), ("second-hit", {"names": 1000})):
            upper, size = "lru:500blocks", 800
            own, known = (
                futae.simulate(WORKLOAD, [upper, (futae.policy(outer, inner, **parameters), size)], frame="dict")
                for inner in (Lru, "lru")
            )
            self.assertGreater(known[0]["level_1_hits"], 0)
            self.assertEqual(own[0]["level_1_hits"], known[0]["level_1_hits"], outer)
        deep = futae.policy("directory", futae.policy("exclusive", Lru))
        futae.simulate(WORKLOAD, [upper, (deep, size)])
        self.assertIn("futae.policy('exclusive', <class", repr(deep))
        two = futae.policy("2q", k_in=0.3)
        (row,) = futae.simulate(WORKLOAD, policies=[two], sizes=[100], frame="dict")
        self.assertEqual(row["policy"], "2q(k_in=0.3)")
        with self.assertRaisesRegex(futae.Error, "3 is no policy"):
            futae.policy("exclusive", 3)
        with self.assertRaisesRegex(futae.Error, "depth"):
            futae.simulate(WORKLOAD, [(futae.policy("exclusive", Lru, depth=3), size)])

    def test_victims_ahead_are_those_that_would_have_been_asked_for(self):
        for source in [WORKLOAD, "uniform:16MiB", "loop:8MiB"]:
            for known, own in [("lru", LruAhead), ("fifo", FifoAhead)]:
                found = misses(source, policies=[known, own], sizes=[1, 2, 100, "40%"])
                self.assertEqual(found[:4], found[4:], (source, known))
        # Below an exclusive cache blocks leave that were promoted, and the upper one gives what it evicts.
        found = misses(levels=[["lru:100blocks", "lru:500blocks"], ["lru:100blocks", ("exclusive", 500)]])
        upper = misses(levels=[[(LruAhead, 100), "lru:500blocks"], [(LruAhead, 100), ("exclusive", 500)]])
        self.assertEqual(found, upper)

    def test_victims_ahead_are_asked_for_seldom(self):
        calls = {"victims": 0, "evicted": 0, "miss": 0, "hit": 0, "blocks": 0}

        class Counting(LruAhead):
            def victims(self, count):
                calls["victims"] += 1
                found = super().victims(count)
                assert 1 <= len(found) <= count
                return found

            def evicted(self, blocks):
                calls["evicted"] += 1
                calls["blocks"] += len(blocks)
                super().evicted(blocks)

            def miss(self, blocks):
                calls["miss"] += 1
                super().miss(blocks)

            def hit(self, blocks):
                calls["hit"] += 1
                super().hit(blocks)

        found = misses("uniform:64MiB", policies=[Counting], sizes=["10%"], requests=50_000, warmup=0)[0][0]
        self.assertGreater(found, 40_000)
        self.assertGreater(calls["blocks"], found - 1638 - 4096)
        self.assertLess(calls["victims"], found / 20)
        self.assertLess(calls["miss"], found / 4)

    def test_wrong_victims_name_the_policy(self):
        def made(answer, **methods):
            methods = {"victims": lambda self, count: answer(self, count), **methods}
            return type("Wrong", (LruAhead,), methods)

        for policy, part in [
            (made(lambda self, count: []), "victims answered no block"),
            (made(lambda self, count: [10**9]), "victims answered 1000000000, which is not resident"),
            (made(lambda self, count: [next(iter(self.order))] * 2), "twice"),
            (made(lambda self, count: None), "victims raised TypeError"),
            (made(lambda self, count: 1 / 0), "victims raised ZeroDivisionError"),
            (made(LruAhead.victims, evicted=lambda self, blocks: 1 / 0), "evicted raised ZeroDivisionError"),
            (made(LruAhead.victims, evicted=None), "evicted raised TypeError"),
        ]:
            with self.assertRaises(futae.Error) as raised:
                misses(policies=[policy], sizes=[100])
            self.assertIn("python/Wrong", str(raised.exception))
            self.assertIn(part, str(raised.exception))

    def test_admission_declines_blocks(self):
        class Odd(Lru):
            def admit(self, block):
                return block % 2 == 1

        class None_(Lru):
            def evict(self, incoming):
                return None

        found = futae.simulate(WORKLOAD, policies=["lru", Odd, None_], sizes=[100], requests=9000, frame="dict")
        self.assertEqual(found[0]["bypasses"], 0)
        self.assertTrue(0 < found[1]["bypasses"] < found[1]["misses"])
        self.assertGreater(found[2]["bypasses"], 0)

    def test_calls_come_in_batches_and_in_order(self):
        log = []

        class Noting(Lru):
            def miss(self, blocks):
                log.extend(("miss", block) for block in blocks)
                super().miss(blocks)

            def hit(self, blocks):
                log.append(len(blocks))
                log.extend(("hit", block) for block in blocks)
                super().hit(blocks)

            def evict(self, incoming):
                victim = super().evict(incoming)
                log.append(("evict", victim))
                return victim

        blocks = [0, 1, 0, 0, 1, 2, 2]
        misses(numpy.array(blocks), levels=[(Noting, 2)], requests=None)
        wanted = [("miss", 0), ("miss", 1), 3, ("hit", 0), ("hit", 0), ("hit", 1), ("evict", 0)]
        self.assertEqual(log[: len(wanted)], wanted)

    def test_a_wrong_answer_names_the_policy(self):
        class Stranger(Lru):
            def evict(self, incoming):
                return 2**40

        class Word(Lru):
            def evict(self, incoming):
                return "none"

        class Broken(Lru):
            def miss(self, blocks):
                raise KeyError("lost")

        class Unmade:
            pass

        class Shut(Lru):
            def __init__(self, slots):
                raise MemoryError("no room")

        def said(policy):
            with self.assertRaises(futae.Error) as raised:
                misses(levels=[(policy, 100)])
            self.assertIn(f"python/{policy.__name__}", str(raised.exception))
            return str(raised.exception), raised.exception.__cause__

        self.assertIn("evict answered 1099511627776, which is not resident", said(Stranger)[0])
        self.assertIn("evict raised TypeError", said(Word)[0])
        text, cause = said(Broken)
        self.assertIn("miss raised KeyError: 'lost'", text)
        self.assertIsInstance(cause, KeyError)
        self.assertIn("has no method miss", said(type("Unmade", (), {"__init__": lambda self, slots: None}))[0])
        self.assertIsInstance(said(Shut)[1], MemoryError)
        with self.assertRaises(futae.Error) as raised:
            misses(levels=["lru:10blocks", "python/Lru:10blocks"])
        self.assertIn("there is no such file", str(raised.exception))

    def test_a_method_that_cannot_be_looked_up_is_not_taken_for_absent(self):
        for name in ("admit", "hit", "remove", "victims"):

            def fails(self):
                raise RuntimeError(f"no {name} today")

            broken = type("Broken", (Lru,), {name: property(fails)})
            with self.subTest(name=name):
                with self.assertRaises(futae.Error) as raised:
                    futae.simulate(WORKLOAD, policies=[broken], sizes=[100])
                self.assertIn(f"no {name} today", str(raised.exception))
                self.assertIsInstance(raised.exception.__cause__, RuntimeError)

    def test_an_interrupt_ends_the_calls(self):
        class Slow(Fifo):
            calls = 0

            def evict(self, incoming):
                Slow.calls += 1
                if Slow.calls == 100:
                    os.kill(os.getpid(), signal.SIGINT)
                if Slow.calls > 100:
                    time.sleep(0.0002)
                return super().evict(incoming)

        # Programs in the background of a shell ignore it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with self.assertRaises(KeyboardInterrupt):
            futae.simulate(numpy.arange(50_000), policies=[Slow], sizes=[10], warmup=0)
        self.assertLess(Slow.calls, 25_000)

    def test_an_interrupt_ends_calls_for_hits(self):
        class Slow(Lru):
            calls = 0

            def hit(self, blocks):
                Slow.calls += 1
                if Slow.calls == 1:
                    os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with self.assertRaises(KeyboardInterrupt):
            futae.simulate(numpy.arange(900_000) % 50, policies=[Slow], sizes=[100], warmup=0)
        self.assertLess(Slow.calls, 110)

    def test_a_program_ends_while_a_daemon_thread_calls_a_policy(self):
        script = (
            "import futae, numpy, threading\n"
            "begun = threading.Event()\n"
            "class Fifo:\n"
            "    def __init__(self, capacity):\n"
            "        self.blocks = []\n"
            "    def miss(self, blocks):\n"
            "        begun.set()\n"
            "        self.blocks.extend(blocks)\n"
            "    def evict(self, incoming):\n"
            "        return self.blocks.pop(0)\n"
            "def work():\n"
            "    futae.simulate(numpy.arange(50_000_000), policies=[Fifo], sizes=[10], warmup=0)\n"
            "threading.Thread(target=work, daemon=True).start()\n"
            "begun.wait()\n"
        )
        for _ in range(5):
            ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_a_forked_process_does_not_wait_for_the_work_of_the_other(self):
        script = (
            "import futae, numpy, os, signal, threading\n"
            "begun, forked = threading.Event(), threading.Event()\n"
            "class Held:\n"
            "    def __init__(self, capacity):\n"
            "        self.blocks = []\n"
            "    def miss(self, blocks):\n"
            "        self.blocks.extend(blocks)\n"
            "    def evict(self, incoming):\n"
            "        begun.set()\n"
            "        forked.wait()\n"
            "        return self.blocks.pop(0)\n"
            "def work():\n"
            "    futae.simulate(numpy.arange(20), policies=[Held], sizes=[10], warmup=0, frame='dict')\n"
            "working = threading.Thread(target=work)\n"
            "working.start()\n"
            "begun.wait()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            # Shorter than the end of an interpreter waits for work: it ends a process that waits.
            "    signal.alarm(4)\n"
            "else:\n"
            "    forked.set()\n"
            "    working.join()\n"
            "    assert os.waitpid(child, 0)[1] == 0, 'the forked process waited'\n"
        )
        words = [sys.executable, "-W", "ignore", "-c", script]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_an_interrupt_in_a_policy_is_no_error_of_it(self):
        for raised in (KeyboardInterrupt, SystemExit):
            with self.subTest(raised=raised):

                class Ending(Fifo):
                    def evict(self, incoming):
                        raise raised

                with self.assertRaises(raised):
                    futae.simulate(numpy.arange(100), policies=[Ending], sizes=[10], warmup=0)

    def test_what_makes_policies_need_not_be_a_class(self):
        class Named(Lru):
            def __init__(self, name, slots):
                super().__init__(slots)

        found = misses(policies=["lru", functools.partial(Named, "x"), lambda slots: Lru(slots)], sizes=[50])
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])

    def test_simulations_of_two_threads_keep_their_policies_apart(self):
        found = {}

        def one(name, base):
            own = type("Same", (base,), {})
            found[name] = misses(levels=[(own, 100)])

        threads = [threading.Thread(target=one, args=each) for each in [("lru", Lru), ("fifo", Fifo)]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in ("lru", "fifo"):
            self.assertEqual(found[name], misses(levels=[(name, 100)]))


class Arrays(unittest.TestCase):
    def setUp(self):
        self.blocks = [at * at * 7919 % 613 for at in range(20_000)]

    def test_an_array_is_the_trace_of_its_numbers(self):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "numbers.le64")
            numpy.array(self.blocks, dtype="<u8").tofile(path)
            wanted = futae.simulate(path, levels=["arc:10%"], format="le64", frame="report")
        kinds = [numpy.array(self.blocks, dtype=kind) for kind in ("u8", "i8", "u4", "i4", "u2", "i2")]
        kinds += [array.array("q", self.blocks), memoryview(array.array("I", self.blocks)), pandas.Series(self.blocks)]
        for numbers in kinds:
            found = futae.simulate(numbers, levels=["arc:10%"], frame="report")
            self.assertEqual(found["trace_digest"], wanted["trace_digest"])
            self.assertEqual(found["runs"][0]["levels"], wanted["runs"][0]["levels"])
            self.assertEqual(found["trace"]["accesses"], len(self.blocks))

    def test_arrays_of_several_guests_share_the_last_level(self):
        guests = [numpy.array(self.blocks), numpy.array(self.blocks[::-1])]
        report = futae.simulate(guests, levels=["lru:50blocks", "exclusive:100blocks"], frame="report")
        self.assertEqual(report["runs"][0]["levels"][0]["requests"], 40_000)

    def test_an_array_is_not_copied_as_numpy_has_it(self):
        frozen = numpy.array(self.blocks)
        frozen.setflags(write=False)
        self.assertEqual(misses(frozen, levels=["lru:9blocks"]), misses(frozen.copy(), levels=["lru:9blocks"]))

    def test_what_is_no_array_of_blocks_is_refused(self):
        for wrong, message in [
            (numpy.array([1.5, 2.5]), "whole numbers"),
            (numpy.array([3, 4, -1, 5]), "number 2 of the array is below 0"),
            (numpy.arange(100)[::2], "ascontiguousarray"),
            (numpy.arange(100).reshape(10, 10), "one dimension"),
            (numpy.array([], dtype="u8"), "is empty"),
            (numpy.array([1, 128], dtype=">u8"), "order of bytes"),
            (numpy.ma.masked_array([1, 2, 3], mask=[0, 1, 1]), "compressed()"),
            (numpy.array(["2026-01-01"], dtype="datetime64[s]"), "whole numbers"),
            (pyarrow.array([1, 2], pyarrow.timestamp("s")), "whole numbers"),
            ([1, 2, 3], "numpy.array"),
        ]:
            with self.assertRaises(futae.Error) as raised:
                misses(wrong, levels=["lru:9blocks"])
            self.assertIn(message, str(raised.exception))
        with self.assertRaises(futae.Error) as raised:
            misses(numpy.arange(9), levels=["lru:9blocks"], guests=2)
        self.assertIn("guest", str(raised.exception))


class PlugIns(unittest.TestCase):
    def test_a_library_is_a_policy(self):
        root = os.environ["FUTAE_ROOT"]
        with tempfile.TemporaryDirectory() as place:
            library = os.path.join(place, "liblru.so")
            include = os.path.join(root, "crates/futae-plugin/include")
            source = os.path.join(root, "examples/plugins/lru.c")
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", include, "-o", library, source], check=True)
            found = misses(policies=["lru", library], sizes=[100])
            self.assertEqual(found[0], found[1])
            told = subprocess.run(
                [BINARY, "sim", WORKLOAD, "--policy", library, "--sizes", "100blocks", "--requests", "50000", "--csv"],
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertIn(f",{found[0][0]},", told.stdout)


if __name__ == "__main__":
    unittest.main()
