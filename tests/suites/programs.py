"""The suites: where their programs are, how they are run, and what they say of each case."""

import json
import os
import re
import shlex
import shutil

from fsstress import fsstress
from guest import blktests, guest_xfstests
from iotests import iotests
from libnbd import libnbd
from places import DISKS, LIMIT_SECONDS, SERVED, TREES, Missing, Place, must, run, say, xfstests_source

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
CARGO = os.environ.get("CARGO", "cargo")
VERSIONS = {"pjdfstest": "0.2.2", "fsx": "0.3.2"}


def from_crates(name):
    """The path of a program of crates.io, which is installed if it is not there."""
    named = os.environ.get(name.upper())
    if named:
        return os.path.abspath(named)
    place = os.path.join(os.path.abspath(TARGET), "suites")
    program = os.path.join(place, f"{name}-{VERSIONS[name]}", "bin", name)
    if not os.path.exists(program):
        say(f"installing {name} {VERSIONS[name]} from crates.io")
        root = os.path.dirname(os.path.dirname(program))
        command = [CARGO, "install", "--locked", "--quiet", "--version", VERSIONS[name], "--root", root, "--target-dir", os.path.join(place, "build"), name]
        status, text = run(command)
        if status != 0:
            raise Missing(f"{name} {VERSIONS[name]} cannot be installed from crates.io; name the program by {name.upper()}: {text.strip()[-300:]}")
    return program


def of_debian(name):
    """The path of an installed program."""
    program = shutil.which(name)
    if not program:
        raise Missing(f"{name} is not installed; Debian's package is called {name}")
    return program


def before(work, **scripts):
    """An environment in which these scripts stand before the programs of their names."""
    place = os.path.join(work, "before")
    os.makedirs(place, exist_ok=True)
    for name, script in scripts.items():
        path = os.path.join(place, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        os.chmod(path, 0o755)
    return dict(os.environ, PATH=f"{place}:{os.environ['PATH']}")


def pjdfstest(place, options, work):
    """Every case of pjdfstest, with its features that ext4 has."""
    program = from_crates("pjdfstest")
    config = os.path.join(work, "pjdfstest.toml")
    other = os.path.join(place.work, "other")
    os.makedirs(other, exist_ok=True)
    must("mount", "-t", "tmpfs", "none", other)
    with open(config, "w", encoding="utf-8") as file:
        file.write(
            f"[features]\nposix_fallocate = {{}}\nutime_now = {{}}\nutimensat = {{}}\nrename_ctime = {{}}\nsecondary_fs = {json.dumps(other)}\n"
            '[settings]\nnaptime = 0.01\nallow_remount = true\n[dummy_auth]\nentries = [["nobody", "nogroup"], ["daemon", "daemon"]]\n'
        )
    # The kernel is asked for remounts, not the helper of a file system, which need not be installed.
    environment = before(work, mount=f'#!/bin/sh\nexec {shutil.which("mount")} -i "$@"\n')
    try:
        _, text = run([program, "-c", config, "-p", place.directory], env=environment)
    finally:
        must("umount", other)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    words = {"ok": "ok", "FAILED": "failed", "skipped": "skipped"}
    cases = {}
    for name, word, detail in re.findall(r"^(\S+::\S+) +(ok|FAILED|skipped)$(?:\n\t(.*))?", text, re.M):
        cases[name] = (words[word], detail)
    return cases


FSX = """flen = 4194304
[opsize]
max = 131072
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 3
sendfile = 3
posix_fadvise = 2
copy_file_range = 3
"""


def fsx(place, options, work):
    """Random operations on one file, by seeds."""
    program = from_crates("fsx")
    config = os.path.join(work, "fsx.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(FSX)
    cases = {}
    for seed in range(1, options.seeds + 1):
        file = os.path.join(place.directory, "fsx")
        status, text = run([program, "-f", config, "-N", str(options.operations), "-S", str(seed), "-P", work, file])
        last = (text.strip().splitlines() or [""])[-1]
        cases[f"seed-{seed}"] = ("ok" if status == 0 else "failed", last)
        if os.path.exists(file):
            os.unlink(file)
    return cases


def stress_ng(place, options, work):
    """Each stressor of the class `filesystem`, with verification."""
    program = of_debian("stress-ng")
    _, text = run([program, "--class", "filesystem?"])
    directory = os.path.join(place.directory, "stress")
    os.makedirs(directory, exist_ok=True)
    # Some stressors give up root's rights.
    os.chmod(directory, 0o777)
    cases = {}
    for stressor in text.partition("stressors:")[2].split():
        command = [program, "--temp-path", directory, "--verify", "--timeout", str(options.seconds), f"--{stressor}", "1"]
        status, said = run(command, 60 + 10 * options.seconds, cwd=work)
        # 3: it is not for this machine; 1 with this message: it refused to start.
        is_skipped = status == 3 or (status == 1 and "No stress workers invoked" in said)
        detail = next((line for line in said.splitlines() if "fail" in line or "error" in line), f"status {status}")
        cases[stressor] = ("ok" if status == 0 else "skipped" if is_skipped else "failed", detail)
    return cases


def fio(place, options, work):
    """Random writes that are read again and compared."""
    program = of_debian("fio")
    cases = {}
    for name, more in {
        "psync": ["--ioengine=psync", "--bsrange=512-64k", "--bs_unaligned=1"],
        "psync-fsync": ["--ioengine=psync", "--bsrange=4k-64k", "--fsync=16"],
        "mmap": ["--ioengine=mmap", "--bs=4k"],
        "libaio-direct": ["--ioengine=libaio", "--direct=1", "--iodepth=16", "--bs=4k"],
        "io_uring-direct": ["--ioengine=io_uring", "--direct=1", "--iodepth=16", "--bs=64k"],
    }.items():
        file = os.path.join(place.directory, "fio")
        command = [program, f"--name={name}", f"--filename={file}", "--size=32m", "--rw=randwrite", "--verify=crc32c", "--verify_fatal=1", "--randseed=1", *more]
        status, text = run(command, cwd=work)
        detail = next((line for line in text.splitlines() if "verify:" in line or "error" in line.lower()), f"status {status}")
        cases[name] = ("ok" if status == 0 else "failed", detail)
        if os.path.exists(file):
            os.unlink(file)
    return cases


def dbench(place, options, work):
    """A recorded file server's load, from four clients."""
    program = of_debian("dbench")
    status, text = run([program, "-D", place.directory, "-t", str(max(5, options.seconds)), "4"], cwd=work)
    is_done = status == 0 and "Throughput" in text
    return {"4-clients": ("ok" if is_done else "failed", (text.strip().splitlines() or [""])[-1])}


def xfstests(place, options, work):
    """What `check` of xfstests says, with a second file system beside."""
    suite = xfstests_source()
    scratch = Place(place.mode, place.futae, work)
    settings, environment, loops = {}, dict(os.environ), []
    has_disk = place.mode not in TREES
    for name, one in (("TEST", place), ("SCRATCH", scratch)):
        directory = one.made[-1]
        if has_disk:
            # A loop device that outlives a mount: xfstests unmounts, formats and mounts by itself.
            must("umount", one.made.pop())
            device = must("losetup", "--find", "--show", one.disk)
            loops.append(device)
        else:
            device = must("findmnt", "--noheadings", "--output", "SOURCE", directory)
        settings[f"{name}_DEV"], settings["TEST_DIR" if name == "TEST" else "SCRATCH_MNT"] = device, directory
    if has_disk:
        settings["FSTYP"] = "ext4"
    else:
        options_of_mount = ",".join(option.strip("-") for option in " ".join(TREES[place.mode]).replace(" --", "\n").replace(" ", "=").split("\n"))
        settings.update(FSTYP="fuse", FUSE_SUBTYP=".futae", MOUNT_OPTIONS=f"-o{options_of_mount}", TEST_FS_MOUNT_OPTS=f"-o{options_of_mount}")
        # xfstests expects a name as the device of a FUSE mount, `fuse` as its type, and a helper of mount(8).
        pairs = "".join(f"{settings[f'{name}_DEV']}) word={settings[where]};; " for name, where in (("TEST", "TEST_DIR"), ("SCRATCH", "SCRATCH_MNT")))
        environment = before(
            work,
            mount=f'#!/bin/bash\ncase "$*" in *fuse.futae*) exec {place.futae} mount-helper "$@";; esac\nexec {shutil.which("mount")} "$@"\n',
            umount=f'#!/bin/bash\nwords=()\nfor word; do case $word in {pairs}esac; words+=("$word"); done\nexec {shutil.which("umount")} "${{words[@]}}"\n',
            df=f'#!/bin/bash\n{shutil.which("df")} "$@" | sed "s/fuse\\.futae/fuse/"\n',
        )
    config = os.path.join(work, "xfstests.config")
    with open(config, "w", encoding="utf-8") as file:
        file.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    environment.update(HOST_OPTIONS=config, RESULT_BASE=os.path.join(work, f"xfstests-{place.mode}"))
    try:
        _, text = run(["./check", *shlex.split(options.tests)], 12 * LIMIT_SECONDS, cwd=suite, env=environment)
        # What it mounted anew is no longer the mount of the place.
        for one in () if has_disk else (place, scratch):
            run(["umount", one.directory])
            one.made.pop()
    finally:
        for device in loops:
            run(["umount", device])
            run(["losetup", "--detach", device])
        scratch.close()
    cases = {}
    for line in text.splitlines():
        found = re.match(r"(\w+/\d+)\s+(?:\d+s \.\.\. )?\s*(.*)$", line)
        if found:
            name, rest = found.groups()
            word = "skipped" if "[not run]" in rest or "[expunged]" in rest else "ok" if re.fullmatch(r"\d+s", rest.strip()) else "failed"
            cases[name] = (word, rest.strip())
    if not cases:
        raise Missing(f"xfstests ran nothing: {text.strip()[-400:]}")
    return cases


# Of LTP's group `fs`: the tests that work in a directory, and not on /proc, /dev or devices of their own.
LTP_TESTS = re.compile(r"(gf|rwtest|iogen|fs_inod|linker|openfile|inode|stream|ftest|lftest|writetest|fs_di|fs_racer)\d*$")


def ltp(place, options, work):
    """The tests of LTP's group `fs` that work in a directory; those that run for a time run for `--seconds`."""
    root = os.environ.get("LTP")
    group = os.path.join(root or "", "runtest", "fs")
    if not root or not os.path.exists(group):
        raise Missing(
            "LTP names no directory with an installed LTP; clone https://github.com/linux-test-project/ltp.git, build and install it by "
            "`make autotools`, `./configure --prefix=DIRECTORY`, `make` and `make install`, and write LTP=DIRECTORY"
        )
    programs = os.path.join(os.path.abspath(root), "testcases", "bin")
    directory = os.path.join(place.directory, "ltp")
    cases = {}
    with open(group, encoding="utf-8") as file:
        tests = [line.strip().split(None, 1) for line in file if line.strip() and not line.startswith("#")]
    for name, command in tests:
        if not LTP_TESTS.match(name):
            continue
        # Times of growfiles and of rwtest.
        command = re.sub(r"-L \d+", f"-L {options.seconds}", command)
        command = re.sub(r"-i \d+s", f"-i {options.seconds}s", command)
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        os.chmod(directory, 0o777)
        environment = dict(os.environ, TMPDIR=directory, LTPROOT=os.path.abspath(root), PATH=f"{programs}:{os.environ['PATH']}")
        status, text = run(["bash", "-c", command], 120 + 30 * options.seconds, cwd=directory, env=environment)
        # 32: it is not for this machine; 127: it was not built.
        word = "ok" if status == 0 else "skipped" if status in (32, 127) else "failed"
        detail = next((line for line in text.splitlines() if "FAIL" in line or "BROK" in line or "rror" in line), f"status {status}")
        cases[name] = (word, detail.strip())
    shutil.rmtree(directory, ignore_errors=True)
    if not any(word == "ok" for word, _ in cases.values()):
        raise Missing(f"LTP ran nothing of {group}")
    return cases


SUITES = {
    "pjdfstest": (pjdfstest, list(TREES)),
    "fsx": (fsx, list(TREES) + list(DISKS)),
    "fsstress": (fsstress, list(TREES) + list(DISKS)),
    "stress-ng": (stress_ng, list(TREES)),
    "fio": (fio, list(TREES) + list(DISKS)),
    "dbench": (dbench, list(TREES) + list(DISKS)),
    "ltp": (ltp, list(TREES) + list(DISKS)),
    "libnbd": (libnbd, ["served"]),
    "iotests": (iotests, ["served", "served-back"]),
    "xfstests": (xfstests, list(TREES)),
    "disk-xfstests": (xfstests, list(DISKS)),
    "guest-xfstests": (guest_xfstests, list(SERVED)),
    "blktests": (blktests, ["served", "served-back"]),
}
