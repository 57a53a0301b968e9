"""Counts of libCacheSim for objects that differ in size, as tests/tests/objects.rs has them.

    python3 -m venv venv && venv/bin/pip install libcachesim==0.3.5
    venv/bin/python lab/truth/record_sizes.py
"""

import os
import struct
import tempfile

import libcachesim as lcs

REQUESTS = 60_000
OBJECTS = 3_000
POLICIES = {
    "fifo": lcs.FIFO,
    "lru": lcs.LRU,
    "sieve": lcs.Sieve,
    "lfu-in-cache": lcs.LFU,
    "gdsf": lcs.GDSF,
}
SIZES = [200_000, 2_000_000, 10_000_000]
# Of objects whose sizes are Pareto's, most of them small: one of a thousand is a hundred times as large as one of ten.
PARETO_SIZES = [10_000, 100_000, 500_000]


def even(object):
    return 1 + object * object * 7919 % 20_011


def pareto(object):
    return 100_000 // (1 + object * object * 7919 % 997)


def requests(size):
    """Objects and their sizes, the same as in the test: low numbers are asked for more often."""
    state = 1
    for _ in range(REQUESTS):
        draws = []
        for _ in range(3):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            draws.append((state >> 33) % OBJECTS)
        object = min(draws)
        yield object, size(object)


def records(all_requests):
    following, out = {}, []
    for at in reversed(range(len(all_requests))):
        object, size = all_requests[at]
        out.append(struct.pack("<IQIq", at // 1000, object, size, following.get(object, -1)))
        following[object] = at
    return b"".join(reversed(out))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sizes.oracleGeneral")
        for size, sizes in [(even, SIZES), (pareto, PARETO_SIZES)]:
            print(f"{size.__name__}:")
            with open(path, "wb") as file:
                file.write(records(list(requests(size))))
            for name, policy in POLICIES.items():
                for capacity in sizes:
                    reader = lcs.TraceReader(
                        path, lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam(ignore_obj_size=False)
                    )
                    miss_ratio, byte_miss_ratio = policy(capacity, hashpower=16).process_trace(reader)
                    print(f'("{name}", {capacity}, {round(miss_ratio * REQUESTS)}, {byte_miss_ratio:.5f}),', flush=True)


main()
