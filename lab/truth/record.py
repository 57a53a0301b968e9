"""Counts of libCacheSim for `futae truth`, as CSV on standard output.

    python3 -m venv venv && venv/bin/pip install libcachesim==0.3.5
    venv/bin/python lab/truth/record.py target/release/futae > crates/futae-cli/src/command/truth/libcachesim-0.3.5.csv

The traces are those that futae's generator writes; each object has one size, so a size is a number of blocks.
LFUDA is left out: its priorities double with every hit, and with 100 blocks of zipf(1.0) its search for the least does not end.
"""

import os
import subprocess
import sys
import tempfile

import libcachesim as lcs

REQUESTS = 200_000
WORKLOADS = ["zipf(1.0):64MiB", "zipf(0.7):64MiB", "uniform:16MiB", "loop:8MiB"]
SIZES = [100, 1000, 3000]
POLICIES = {
    "fifo": lcs.FIFO,
    "lru": lcs.LRU,
    "clock": lcs.Clock,
    "sieve": lcs.Sieve,
    "s3-fifo": lcs.S3FIFO,
    "arc": lcs.ARC,
    "lfu-in-cache": lcs.LFU,
    "2q": lcs.TwoQ,
    "lirs": lcs.LIRS,
    "w-tinylfu": lcs.WTinyLFU,
    "slru": lcs.SLRU,
    "opt": lcs.Belady,
    "gdsf": lcs.GDSF,
    "lecar": lcs.LeCaR,
    "slru(segments=4,fill=true)": lcs.SLRU,
    "clock2q-plus": lcs.Clock2QPlus,
    "clock2q-plus(ghost=0.9)": lcs.Clock2QPlus,
    "cacheus": lcs.Cacheus,
    "lru-k": lcs.LRUK,
    "lru-k(history=0)": lcs.LRUK,
    "clock-pro": lcs.ClockPro,
}


def misses(policy, path, size):
    reader = lcs.TraceReader(
        path,
        lcs.TraceType.ORACLE_GENERAL_TRACE,
        lcs.ReaderInitParam(ignore_obj_size=True),
    )
    cache = POLICIES[policy](size, hashpower=16)
    ratio, _ = cache.process_trace(reader)
    return round(ratio * REQUESTS)


def main():
    futae = sys.argv[1]
    print("workload,requests,policy,blocks,misses")
    with tempfile.TemporaryDirectory() as folder:
        for workload in WORKLOADS:
            path = os.path.join(folder, "t.oracleGeneral")
            command = [futae, "trace", "convert", workload, path, "--requests", str(REQUESTS)]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            for policy in POLICIES:
                for size in SIZES:
                    count = misses(policy, path, size)
                    print(f"{workload},{REQUESTS},{policy},{size},{count}", flush=True)


main()
