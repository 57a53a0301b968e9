"""Directories on an ext4, plain or over futae, for the suites of scripts/suites."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

POLICY = ["--policy", "sieve"]
# Small, so that blocks come and go.
TREES = {
    "through": ["--cache", "8MiB"],
    "back": ["--cache", "8MiB", "--write-mode", "write-back"],
    "kernel": ["--cache", "8MiB", "--residency", "kernel"] + POLICY,
    "kernel-back": ["--cache", "8MiB", "--residency", "kernel", "--write-mode", "write-back"] + POLICY,
}
DISKS = {
    "disk": ["--cache", "8MiB"],
    "disk-back": ["--cache", "8MiB", "--write-mode", "write-back"],
    "pair": ["--cache", "4MiB", "--write-mode", "write-back"],
}
BACK = ["--write-mode", "write-back"]
# No directory over futae: the suite starts servers, with these options. They speak NBD, or are a guest's disk by vhost-user.
SERVED = {"served": [], "served-back": BACK, "vhost": [], "vhost-back": BACK}
IMAGE_BYTES = 2 << 30
# For the start of a mount, and the end.
WAIT_SECONDS = 60
# No single command of a suite takes longer, but xfstests, which is many.
LIMIT_SECONDS = 1800
# A kernel that is busy may take a moment to let go of a mount that no process uses any more.
BUSY_SECONDS = 5


class Missing(Exception):
    """Something that is not here, and how to get it."""


def say(text):
    """A line of progress."""
    print(f"suites: {text}", flush=True)


def run(command, limit=LIMIT_SECONDS, **more):
    """Runs a command to its end; its status and what it printed. None: it did not end in time."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit, check=False, **more
        )
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout


def must(*command):
    """Runs a command that prepares; what it printed."""
    status, text = run(list(command))
    if status != 0:
        sys.exit(f"suites: {shlex.join(command)}: {text.strip()}")
    return text.strip()


def source_of(variable, program, way):
    """The directory of a built suite, which the environment names."""
    directory = os.environ.get(variable)
    if not directory or not os.path.exists(os.path.join(directory, program)):
        raise Missing(f"{variable} names no directory with a built suite; {way}, and write {variable}=DIRECTORY")
    return os.path.abspath(directory)


def xfstests_source():
    """The directory of a built xfstests."""
    return source_of("XFSTESTS", "ltp/fsstress", "clone https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git, build it by make")


class Place:
    """A directory on an ext4 of its own, over futae if a mode is named, until it is closed."""

    def __init__(self, mode, futae, work):
        # Short: the address of a socket has 107 bytes at most.
        self.mode, self.futae, self.work = mode, futae, tempfile.mkdtemp(prefix="", dir=work)
        os.chmod(self.work, 0o755)
        # What is undone by `close`, last first: directories to unmount, and processes with their logs.
        self.made, self.troubles = [], []
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def path(self, name):
        """A new directory beside the image."""
        path = os.path.join(self.work, name)
        os.mkdir(path)
        return path

    def make(self):
        """Makes and mounts it."""
        self.image = os.path.join(self.work, "disk.img")
        with open(self.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        must("mkfs.ext4", "-q", "-F", self.image)
        if self.mode in DISKS:
            shown = self.path("shown")
            source = self.image
            if self.mode == "pair":
                socket = os.path.join(self.work, "nbd.sock")
                self.start("serve", "--cache", "8MiB", "--export", f"disk={self.image}", "--listen", f"unix:{socket}", "--write-mode", "write-back")
                source = f"nbd+unix:///disk?socket={socket}"
            self.start("mount", source, shown, "--name", "disk.img", *DISKS[self.mode])
            self.made.append(shown)
            self.directory = self.loop(os.path.join(shown, "disk.img"), "files")
            return
        lower = self.loop(self.image, "lower")
        if self.mode is None or self.mode in SERVED:
            self.directory = lower
            return
        tree = os.path.join(lower, "tree")
        os.mkdir(tree)
        self.directory = self.path("tree")
        ready = self.start("mount", tree, self.directory, *TREES[self.mode])
        self.made.append(self.directory)
        if "kernel" in self.mode and ready.get("residency") != "kernel":
            raise Missing("this kernel cannot hold a policy's pages: eBPF and Linux 6.12 are needed")

    def loop(self, image, name):
        """Mounts the ext4 of an image, which is the disk below the place's directory from then on."""
        self.disk = image
        directory = self.path(name)
        must("mount", "-t", "ext4", "-o", "loop", image, directory)
        self.made.append(directory)
        return directory

    def start(self, *arguments):
        """Starts futae; what it says when it is ready."""
        process, log = self.run_beside(f"futae {arguments[0]}", self.futae, *arguments, "--json")
        line = process.stdout.readline()
        if not line:
            log.seek(0)
            sys.exit(f"suites: futae {arguments[0]} did not start: {log.read().strip()}")
        return json.loads(line)

    def run_beside(self, name, *command):
        """Starts a program, which `close` ends; its process and its log."""
        log = open(os.path.join(self.work, f"{len(self.made)}.log"), "w+", encoding="utf-8")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.made.append((name, process, log))
        return process, log

    def end_servers(self):
        """Ends the servers that were started last."""
        while self.made and not isinstance(self.made[-1], str):
            self.end(*self.made.pop())

    def close(self):
        """Unmounts everything, ends futae, and looks at the ext4; what was wrong is in `troubles`."""
        while self.made:
            last = self.made.pop()
            if isinstance(last, str):
                self.unmount(last)
            else:
                self.end(*last)
        if not self.troubles:
            status, text = run(["e2fsck", "-fn", os.path.join(self.work, "disk.img")])
            if status != 0:
                self.troubles.append(f"e2fsck: {text.strip()}")
        shutil.rmtree(self.work, ignore_errors=True)

    def unmount(self, directory):
        """Unmounts a directory."""
        until = time.monotonic() + BUSY_SECONDS
        status, text = run(["umount", directory])
        while status != 0 and time.monotonic() < until:
            time.sleep(0.2)
            status, text = run(["umount", directory])
        if status != 0:
            self.troubles.append(f"umount: {text.strip()}")
            run(["umount", "--lazy", directory])

    def end(self, what, process, log):
        """Waits for a mount, which ends when it is unmounted, or ends a server."""
        if what != "futae mount":
            process.terminate()
        try:
            process.communicate(timeout=WAIT_SECONDS)
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            status = "none: it did not end"
        if status != 0:
            log.seek(0)
            self.troubles.append(f"{what} ended with status {status}: {log.read().strip()}")
        log.close()
