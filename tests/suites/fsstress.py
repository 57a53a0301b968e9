"""fsstress of xfstests: the same random calls in each place must leave the same files, and several processes at once a file system without a fault."""

import hashlib
import os
import shutil
import stat

from places import LIMIT_SECONDS, run, xfstests_source

# Calls whose arguments do not depend on the size of a block, which a tree and its ext4 tell differently, and which FUSE has.
CALLS = (
    "creat=4 write=10 writev=4 read=4 readv=2 mread=4 mwrite=8 truncate=4 fallocate=2 punch=3 zero=3 link=2 symlink=2 mkdir=2 mknod=1 rename=4 rnoreplace=1 "
    "unlink=3 rmdir=1 chown=2 setfattr=3 removefattr=1 getfattr=1 getdents=1 readlink=1 stat=1 fsync=2 fdatasync=2"
)
PROCESSES = 4
CALLS_MAX_SECONDS = 4 * LIMIT_SECONDS


def digest_of(directory):
    """What a user sees of a tree: names, modes, owners, sizes, links, contents and attributes."""
    digest = hashlib.sha256()
    for place, directories, files in os.walk(directory):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(place, name)
            status = os.lstat(path)
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            digest.update(repr((os.path.relpath(path, directory), status.st_mode, status.st_uid, status.st_gid, size)).encode())
            if stat.S_ISLNK(status.st_mode):
                digest.update(os.readlink(path).encode())
                continue
            for attribute in sorted(os.listxattr(path)):
                digest.update(repr((attribute, os.getxattr(path, attribute))).encode())
            if stat.S_ISREG(status.st_mode):
                digest.update(repr(status.st_nlink).encode())
                with open(path, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def fsstress(place, options, _work):
    """For each seed, the calls of one process, whose files are part of the case's name, and those of several at once."""
    program = os.path.join(xfstests_source(), "ltp", "fsstress")
    calls = [word for call in CALLS.split() for word in ("-f", call)]
    cases = {}
    for seed in range(1, options.seeds + 1):
        for processes in (1, PROCESSES):
            directory = os.path.join(place.directory, "fsstress")
            os.mkdir(directory)
            command = [program, "-z", *calls, "-d", directory, "-n", str(options.operations), "-p", str(processes), "-s", str(seed)]
            status, text = run(command, CALLS_MAX_SECONDS)
            files = f" leaves {digest_of(directory)}" if processes == 1 else ""
            cases[f"seed {seed}, {processes} at once{files}"] = ("ok" if status == 0 else "failed", text.strip()[-200:])
            shutil.rmtree(directory)
    return cases
