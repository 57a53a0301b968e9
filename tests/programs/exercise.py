"""Random operations on one file, through maps and calls, held against a copy in memory.

Usage: exercise.py FILE OPERATIONS SEED [fixed]. Prints what was done; fails at the first difference. A fixed
file is there already and keeps its size, as a disk does; what is in it at the end is also written to the
standard output, behind the line that says what was done.
"""

import ctypes
import mmap
import os
import random
import sys

SIZE_MAX = 256 << 10
PAGE = 4096
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Exercise:
    def __init__(self, path, seed, fixed):
        self.path = path
        self.fixed = fixed
        self.dice = random.Random(seed)
        how = 0 if fixed else os.O_CREAT | os.O_TRUNC
        self.file = os.open(path, os.O_RDWR | how, 0o644)
        self.model = bytearray(os.pread(self.file, 2 * SIZE_MAX, 0))
        self.count = {}
        self.last = []

    def span(self, limit, longest=64 << 10):
        """A range that begins below `limit`; often short, often at the edge of a page."""
        offset = self.dice.randrange(max(limit, 1))
        if self.dice.random() < 0.3:
            offset -= offset % PAGE
        length = self.dice.choice([1, 100, PAGE, self.dice.randrange(1, longest)])
        return offset, length

    def check(self, got, offset, length, how):
        wanted = self.model[offset : offset + length]
        if got != wanted:
            at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            print("\n".join(self.last[-30:]))
            sys.exit(
                f"{how} of {length} bytes at {offset} differs at byte {offset + at}: "
                f"{len(got)} bytes of {len(wanted)}, size {len(self.model)}"
            )

    def grow(self, end):
        self.model.extend(bytes(max(0, end - len(self.model))))

    def read(self):
        offset, length = self.span(SIZE_MAX)
        self.check(os.pread(self.file, length, offset), offset, length, "a read")
        return offset, length

    def write(self):
        offset, length = self.span(SIZE_MAX)
        if self.fixed:
            length = min(length, len(self.model) - offset)
        data = self.dice.randbytes(length)
        assert os.pwrite(self.file, data, offset) == length
        self.grow(offset + length)
        self.model[offset : offset + length] = data
        return offset, length

    def append(self):
        if len(self.model) > SIZE_MAX:
            return self.truncate()
        length = self.span(1)[1]
        data = self.dice.randbytes(length)
        other = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        assert os.write(other, data) == length
        os.close(other)
        self.model.extend(data)
        return (length,)

    def truncate(self):
        size = self.dice.randrange(SIZE_MAX)
        if self.dice.random() < 0.5:
            os.ftruncate(self.file, size)
        else:
            os.truncate(self.path, size)
        del self.model[size:]
        self.grow(size)
        return (size,)

    def mapped(self):
        size = len(self.model)
        if size == 0:
            return None
        offset, length = self.span(size)
        length = min(length, size - offset)
        start = offset - offset % PAGE
        held = mmap.mmap(self.file, offset - start + length, offset=start)
        return held, offset, length, offset - start

    def map_read(self):
        found = self.mapped()
        if not found:
            return ()
        held, offset, length, at = found
        self.check(held[at : at + length], offset, length, "a look into a map")
        held.close()
        return offset, length

    def map_write(self):
        found = self.mapped()
        if not found:
            return ()
        held, offset, length, at = found
        data = self.dice.randbytes(length)
        held[at : at + length] = data
        self.model[offset : offset + length] = data
        if self.dice.random() < 0.5:
            held.flush()
        held.close()
        return offset, length

    def allocate(self, mode, offset, length):
        if libc.fallocate(self.file, mode, offset, length) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")

    def zero(self, offset, length):
        end = min(offset + length, len(self.model))
        if offset < end:
            self.model[offset:end] = bytes(end - offset)

    def punch(self):
        offset, length = self.span(SIZE_MAX)
        self.allocate(PUNCH_HOLE | KEEP_SIZE, offset, length)
        self.zero(offset, length)
        return offset, length

    def zero_range(self):
        offset, length = self.span(SIZE_MAX)
        keep = self.dice.random() < 0.5 or self.fixed
        self.allocate(ZERO_RANGE | (KEEP_SIZE if keep else 0), offset, length)
        self.zero(offset, length)
        if not keep:
            self.grow(offset + length)
        return offset, length, keep

    def reserve(self):
        offset, length = self.span(SIZE_MAX)
        keep = self.dice.random() < 0.5
        self.allocate(KEEP_SIZE if keep else 0, offset, length)
        if not keep:
            self.grow(offset + length)
        return offset, length, keep

    def reopen(self):
        os.close(self.file)
        self.file = os.open(self.path, os.O_RDWR)
        return ()

    def sync(self):
        os.fsync(self.file)
        return ()

    def forget(self):
        """What is read next does not come from the page cache."""
        os.fsync(self.file)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        return ()

    def size(self):
        size = os.fstat(self.file).st_size
        if size != len(self.model):
            print("\n".join(self.last[-30:]))
            sys.exit(f"the file has {size} bytes, not {len(self.model)}")
        return (size,)

    def run(self, operations):
        frequent = [self.read, self.write, self.map_read, self.map_write, self.size]
        rare = [self.punch, self.zero_range, self.reopen]
        if not self.fixed:
            rare += [self.append, self.truncate, self.reserve]
        for _ in range(operations):
            kind = self.dice.random()
            what = self.dice.choice(frequent if kind < 0.8 else rare)
            if kind >= 0.996:
                what = self.sync if kind >= 0.999 else self.forget
            done = what()
            self.count[what.__name__] = self.count.get(what.__name__, 0) + 1
            self.last.append(f"{what.__name__} {done} -> {len(self.model)}")
            del self.last[:-40]
        self.check(os.pread(self.file, 2 * SIZE_MAX, 0), 0, 2 * SIZE_MAX, "the last read")
        print(f"{operations} operations: {self.count}", flush=True)
        if self.fixed:
            sys.stdout.buffer.write(self.model)


Exercise(sys.argv[1], int(sys.argv[3]), sys.argv[4:] == ["fixed"]).run(int(sys.argv[2]))
