"""Processor time of futae and of libCacheSim on the same trace, as a Markdown table.

    python3 -m venv venv && venv/bin/pip install libcachesim==0.3.5
    venv/bin/python lab/truth/speed.py target/release/futae 27517 w106.le32
    venv/bin/python lab/truth/speed.py target/release/futae 76254 arc-P3.lis --block 512 --view blocks

SLOTS, then the trace and how `futae sim` and `futae trace convert` read it. libCacheSim reads the trace as oracleGeneral, which futae writes; it is in a process of its own, and
only the time from opening the trace to its end counts, not Python's start. Of futae all of the process counts. The least of ROUNDS runs (4), in
turns.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile

POLICIES = "fifo lru clock sieve arc s3-fifo lirs 2q lfu-in-cache w-tinylfu slru opt".split()
LIBCACHESIM = """
import resource, sys
import libcachesim as lcs
names = dict(zip(%r, [lcs.FIFO, lcs.LRU, lcs.Clock, lcs.Sieve, lcs.ARC, lcs.S3FIFO, lcs.LIRS, lcs.TwoQ, lcs.LFU, lcs.WTinyLFU, lcs.SLRU, lcs.Belady]))
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before = used()
reader = lcs.TraceReader(sys.argv[1], lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=True))
ratio, _ = names[sys.argv[2]](int(sys.argv[3])).process_trace(reader)
print(used() - before, ratio)
""" % (POLICIES,)


def futae(command):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return used() - before, json.loads(run.stdout)["runs"][0]["miss_ratio"]


def libcachesim(trace, policy, slots):
    run = subprocess.run(
        [sys.executable, "-c", LIBCACHESIM, trace, policy, slots],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return [float(field) for field in run.stdout.split()[-2:]]


def main():
    program, slots, trace, *reading = sys.argv[1:]
    rounds = int(os.environ.get("ROUNDS", "4"))
    policies = os.environ.get("POLICIES", ",".join(POLICIES)).split(",")
    with tempfile.TemporaryDirectory() as folder:
        oracle = os.path.join(folder, "t.oracleGeneral")
        subprocess.run([program, "trace", "convert", trace, oracle, *reading], check=True, stdout=subprocess.DEVNULL)
        print("| policy | libCacheSim, s | futae, s | ratio | futae, oracleGeneral, s | ratio | miss ratios |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for policy in policies:
            level = ["--level", f"{policy}:{slots}blocks", "--json"]
            least, ratios = [9e9] * 3, [0] * 3
            for _ in range(rounds):
                took = [
                    libcachesim(oracle, policy, slots),
                    futae([program, "sim", trace, *reading, *level]),
                    futae([program, "sim", oracle, *level]),
                ]
                least = [min(a, b[0]) for a, b in zip(least, took)]
                ratios = [b[1] for b in took]
            theirs, ours, same = least
            print(
                f"| `{policy}` | {theirs:.3f} | {ours:.3f} | {theirs / ours:.1f} | {same:.3f} | {theirs / same:.1f} | "
                f"{ratios[0]:.4f}, {ratios[1]:.4f} |",
                flush=True,
            )


main()
