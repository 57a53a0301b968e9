"""A file that is written by calls and, at the same time, by a map: mapped.py FILE ROUNDS [fixed].

The first half of each page is written by `pwrite`, and must then be seen by the map and by `sendfile`. A second process writes to
the other half by a map, and nothing of that may be lost either. There are ROUNDS rounds of calls, and more until the second process
went through the pages once: on a busy machine it may begin late. Prints how often it went through them."""

import mmap
import os
import sys

PAGE, PAGES, HALF = 4096, 8, 2048
path, rounds = sys.argv[1], int(sys.argv[2])
if len(sys.argv) < 4:
    with open(path, "wb") as made:
        made.truncate(PAGES * PAGE)
file = os.open(path, os.O_RDWR)
mapped = mmap.mmap(file, PAGES * PAGE)
# Of the second process: how often it went through the pages, and whether it is to end.
told = mmap.mmap(-1, PAGE)
out, into = os.pipe()


def number(data):
    return int.from_bytes(data, "little")


def sent(at):
    os.sendfile(into, file, at, 8)
    return number(os.read(out, 8))


child = os.fork()
if child == 0:
    done = 0
    while told[8] == 0:
        for at in range(HALF, PAGES * PAGE, PAGE):
            seen = number(mapped[at : at + 8])
            if seen != done:
                print(f"the map had {done} at {at}, and has {seen}", flush=True)
                told[8] = 1
                os._exit(1)
            mapped[at : at + 8] = (done + 1).to_bytes(8, "little")
        done += 1
        told[:8] = done.to_bytes(8, "little")
    os._exit(0)

lost = round = 0
while told[8] == 0 and (round < rounds or number(told[:8]) == 0):
    round += 1
    for at in range(0, PAGES * PAGE, PAGE):
        os.pwrite(file, round.to_bytes(8, "little"), at)
        for way, seen in (("the map", number(mapped[at : at + 8])), ("sendfile", sent(at))):
            if seen != round:
                lost += 1
                print(f"{round} was written at {at}; {way} has {seen}", flush=True)
told[8] = 1
_, status = os.waitpid(child, 0)
done = number(told[:8])
mapped.flush()
for at in range(0, PAGES * PAGE, PAGE):
    found = [number(os.pread(file, 8, where)) for where in (at, at + HALF)]
    if found != [round, done]:
        lost += 1
        print(f"in the end {found} at {at}, and not {[round, done]}")
print(done)
sys.exit(1 if lost or status else 0)
