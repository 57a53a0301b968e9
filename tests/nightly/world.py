"""What is used and changed: a server of five disks, a mount of one of them, and a tree."""

import json
import os
import random
import shutil
import socket
import subprocess

# For a start, an end, and each program that is run.
WAIT_SECONDS = 120
MIB = 1 << 20
# The disks and their sizes; `spare` comes and goes.
DISKS = {"disk": 32 * MIB, "own": 16 * MIB, "still": 8 * MIB, "pair": MIB // 2, "guest": 32 * MIB, "spare": 4 * MIB}


class Failed(Exception):
    """Something that should not be."""


def say(text):
    """A line of progress."""
    print(f"nightly: {text}", flush=True)


def run(*command, may_fail=False):
    """Runs a program to its end; what it printed."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_SECONDS, check=False, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{' '.join(command)}: did not end within {WAIT_SECONDS} s: {late.stdout}") from late
    if done.returncode != 0 and not may_fail:
        raise Failed(f"{' '.join(command)}: status {done.returncode}: {done.stdout.strip()[-2000:]}")
    return done.stdout


class World:
    """All of it, until it is closed."""

    def __init__(self, futae, work, seed):
        self.futae, self.work = futae, work
        # Processes with their logs, and directories to unmount, in the order of their start.
        self.started, self.mounts = {}, []
        # The seed of what the last guest wrote to its disk; 0: nothing yet.
        self.written_in_guest = 0
        dice = random.Random(seed)
        for name, size in DISKS.items():
            with open(self.path(f"{name}.img"), "wb") as image:
                image.write(dice.randbytes(size))
        for name in ("source", "tree", "shown", "scratch"):
            os.mkdir(self.path(name))
        exports = {"disk": "", "own": ",share=4MiB", "still": ",read-only", "pair": "", "guest": ""}
        arguments = [word for name, more in exports.items() for word in ("--export", f"{name}={self.path(name)}.img{more}")]
        try:
            self.start("serve", *arguments, "--cache", "16MiB", "--listen", f"unix:{self.socket}", "--listen", f"guest=vhost-user:{self.path('guest.sock')}", "--write-mode", "write-back", "--state-dir", self.path("scratch"))
            self.start("pair", self.uri("pair"), self.path("shown"), "--cache", "256KiB", "--name", "pair.img")
            self.start("tree", self.path("source"), self.path("tree"), "--cache", "4MiB", "--write-mode", "write-back")
        except BaseException:
            self.close()
            raise

    def path(self, name):
        """A path in the working directory."""
        return os.path.join(self.work, name)

    @property
    def socket(self):
        """The path of the server's socket."""
        return self.path("nbd.sock")

    def uri(self, export):
        """The address of an export."""
        return f"nbd+unix:///{export}?socket={self.socket}"

    def start(self, name, *arguments):
        """Starts `futae serve` or `futae mount` by this name, and waits until it is ready."""
        command = "serve" if name == "serve" else "mount"
        log = open(self.path(f"{name}.log"), "w+", encoding="utf-8")
        words = [self.futae, command, *arguments, "--json", "--control", f"unix:{self.path(name)}.control"]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.started[name] = (process, log)
        if not process.stdout.readline():
            log.seek(0)
            raise Failed(f"futae {command} did not start: {log.read().strip()}")
        if command == "mount":
            self.mounts.append((name, arguments[1]))

    def processes(self):
        """Their numbers, by name."""
        return {name: process.pid for name, (process, _) in self.started.items()}

    def order(self, name, **order):
        """An order at a control socket; its answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_SECONDS)
            connection.connect(f"{self.path(name)}.control")
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile("r", encoding="utf-8") as lines:
                answer = json.loads(lines.readline())
        if "error" in answer:
            raise Failed(f"{name}: {order}: {answer}")
        return answer

    def close(self):
        """Unmounts, ends the server, and says what was wrong."""
        wrong = []
        for name, directory in reversed(self.mounts):
            for options in ([], ["--lazy"]):
                done = subprocess.run(["umount", *options, directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                if done.returncode == 0:
                    break
                wrong.append(f"{name}: umount: {done.stdout.strip()}")
        for name, (process, log) in reversed(self.started.items()):
            if name == "serve":
                process.terminate()
            try:
                process.communicate(timeout=WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            log.seek(0)
            text = log.read()
            if process.returncode != 0 or "panicked" in text:
                wrong.append(f"{name} ended with status {process.returncode}: {text.strip()[-2000:]}")
            log.close()
        self.started.clear()
        self.mounts.clear()
        shutil.rmtree(self.path("scratch"), ignore_errors=True)
        return wrong
