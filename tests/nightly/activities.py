"""What is done with a world, each by one thread: users, who check what they read, operators, and those who break off."""

import hashlib
import os
import socket
import sqlite3
import subprocess
import time

from world import MIB, Failed, run

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs")
POLICIES = ("lru", "sieve", "arc", "lfu", "s3-fifo", "auto")
# Below caches of others, and only there.
LOWER_POLICIES = (*POLICIES, "exclusive")


def tree_data(world, dice):
    """Random operations on a file of the tree, held against a copy in memory; the same is below in the end."""
    name = f"data-{dice.randrange(4)}"
    run("python3", f"{PROGRAMS}/exercise.py", f"{world.path('tree')}/{name}", "1000", str(dice.randrange(1 << 30)))
    above, below = (open(f"{world.path(place)}/{name}", "rb").read() for place in ("tree", "source"))
    if above != below:
        raise Failed(f"{name} differs from the file in the source directory")


def pair_data(world, dice):
    """The same on the mounted disk, which keeps its size."""
    done = subprocess.run(
        ["python3", f"{PROGRAMS}/exercise.py", f"{world.path('shown')}/pair.img", "1000", str(dice.randrange(1 << 30)), "fixed"], capture_output=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise Failed((done.stdout[:500] + done.stderr).decode(errors="replace"))


def maps(world, _dice):
    """A file of the tree is written by calls and through maps."""
    run("python3", f"{PROGRAMS}/mapped.py", f"{world.path('tree')}/mapped", "2")


def names(world, dice):
    """Files are made, named anew, linked and removed."""
    top = f"{world.path('tree')}/names"
    os.makedirs(top, exist_ok=True)
    made = [f"{top}/{dice.randrange(1 << 40):x}" for _ in range(40)]
    for name in made:
        with open(name, "w", encoding="utf-8") as file:
            file.write(name)
        os.rename(name, name + ".new")
        os.link(name + ".new", name)
        os.unlink(name + ".new")
    if sorted(os.listdir(top)) != sorted(map(os.path.basename, made)):
        raise Failed(f"{top} has other names than were made")
    for name in made:
        if open(name, encoding="utf-8").read() != name:
            raise Failed(f"{name} has other data than were written")
        os.unlink(name)


def database(world, dice):
    """A database in the tree."""
    connection = sqlite3.connect(f"{world.path('tree')}/database.sqlite", timeout=60)
    with connection:
        connection.execute("create table if not exists had (number integer, text text)")
        connection.executemany("insert into had values (?, ?)", [(number, "x" * dice.randrange(500)) for number in range(50)])
        connection.execute("delete from had where rowid not in (select rowid from had order by rowid desc limit 500)")
    (found,) = connection.execute("pragma integrity_check").fetchone()
    connection.close()
    if found != "ok":
        raise Failed(f"the database is damaged: {found}")


def patterns(world, dice):
    """A client writes patterns to its part of a disk, and reads them again, on new connections."""
    export, zone = dice.choice((("disk", 16 * MIB), ("own", 8 * MIB)))
    offset, pattern = zone + dice.randrange(zone // 4096) * 4096 // 2, dice.randrange(1, 255)
    length = min(dice.choice((512, 4096, 65536, MIB)), 2 * zone - offset)
    offset -= offset % 512
    run("qemu-io", "-f", "raw", world.uri(export), "-c", f"write -P {pattern} {offset} {length}", "-c", "flush")
    said = run("qemu-io", "-f", "raw", world.uri(export), "-c", f"read -P {pattern} {offset} {length}")
    if "failed" in said or f"read {length}/{length}" not in said:
        raise Failed(f"{export}: {said.strip()}")


def copies(world, _dice):
    """A client copies a whole disk that nobody writes."""
    copy = world.path("scratch/copy")
    run("nbdcopy", world.uri("still"), copy)
    both = [hashlib.file_digest(open(path, "rb"), "sha256").digest() for path in (copy, world.path("still.img"))]
    os.unlink(copy)
    if both[0] != both[1]:
        raise Failed("the copy of still.img differs from it")


def strangers(world, dice):
    """Clients that say nothing, half of something or anything, and go."""
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(world.socket)
            connection.recv(18)
            connection.sendall(dice.choice((b"", b"\0\0\0\3", b"\0\0\0\1IHAVEOPT\0\0\0\7", dice.randbytes(dice.randrange(200)))))
    time.sleep(0.2)


def killed(world, dice):
    """A client that is killed."""
    with subprocess.Popen(["nbdcopy", world.uri("disk"), "null:"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        time.sleep(dice.random() / 5)
        client.kill()


def sizes(world, dice):
    """Caches are made smaller and larger."""
    world.order("serve", command="resize", cache=f"{dice.randrange(8, 24)}MiB", export="disk")
    world.order("serve", command="resize", cache=f"{dice.randrange(2, 6)}MiB", export="own")
    world.order("tree", command="resize", cache=f"{dice.randrange(2, 6)}MiB")
    time.sleep(dice.random())


def policies(world, dice):
    """Caches get other policies."""
    for name, order in (("serve", {"export": "disk"}), ("serve", {"export": "own"}), ("pair", {}), ("tree", {})):
        world.order(name, command="policy", policy=dice.choice(LOWER_POLICIES if name == "serve" else POLICIES), **order)
    time.sleep(dice.random())


def exports(world, _dice):
    """A disk comes, is read, and goes while a client has it open."""
    world.order("serve", command="export-add", export=f"spare={world.path('spare.img')}")
    size = run("nbdinfo", "--size", world.uri("spare")).strip()
    if size != str(4 * MIB):
        raise Failed(f"spare has {size} bytes")
    with subprocess.Popen(["nbdcopy", world.uri("spare"), "null:"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        world.order("serve", command="export-remove", export="spare", force=True)
        client.kill()


def watchers(world, dice):
    """Counters are read, and a part of what is asked is recorded."""
    for name in ("serve", "pair", "tree"):
        world.order(name, command="status")
    trace = world.path("scratch/trace.csv")
    run(world.futae, "record", f"unix:{world.path('serve')}.control", "--export", "disk", "--out", trace, "--time", f"{dice.randrange(1, 3)}s")
    os.unlink(trace)
    os.unlink(f"{trace}.json")


ACTIVITIES = {
    activity.__name__.replace("_", "-"): activity
    for activity in (tree_data, pair_data, maps, names, database, patterns, copies, strangers, killed, sizes, policies, exports, watchers)
}
