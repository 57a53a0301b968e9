"""QEMU's iotests of NBD, with `futae serve` in place of qemu-nbd."""

import os
import re
import shlex
import shutil

from places import LIMIT_SECONDS, SERVED, Missing, run

# Debian's QEMU has no accelerator `qtest`, with which no guest runs. With tcg the firmware runs, and finds nothing to start.
QEMU = """#!/bin/bash
arguments=() before=
for argument; do
    if [[ "$before" == -accel && "$argument" == qtest ]]; then argument=tcg; fi
    arguments+=("$argument") before="$argument"
done
exec qemu-system-x86_64 "${arguments[@]}"
"""
# The server that a test starts for its image has these arguments. Others, for what a test has in mind for qemu-nbd itself, go to qemu-nbd.
SERVER = """#!/bin/bash
if [[ "$#" == 12 && "$2 $3 $4" == "-v -t -k" && "$6 $7 $8 $9" == "-f raw -e 42" ]]; then
    echo $$ > "${1#--pid-file=}"
    exec FUTAE serve --cache 1MiB --export "disk=${!#}" --listen "disk=unix:$5" MODE 2>> LOG
fi
exec qemu-nbd "$@"
"""
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "qemu-io": "qemu-utils", "qemu-nbd": "qemu-utils"}
LINE = re.compile(r"^(ok|not ok) raw (\S+)(?: # SKIP ?(.*))?")


def source_of_qemu():
    """The directory of QEMU's source."""
    source = os.environ.get("QEMU")
    if not source or not os.path.exists(os.path.join(source, "tests", "qemu-iotests", "check")):
        raise Missing("QEMU names no directory with QEMU's source; run `apt-get source qemu`, and write QEMU=DIRECTORY")
    for program, package in {**PROGRAMS, "qemu-storage-daemon": "qemu-system-common"}.items():
        if not shutil.which(program):
            raise Missing(f"{program} is not installed; Debian's package is called {package}")
    return os.path.abspath(source)


def script(directory, name, text):
    """A program of these lines."""
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def iotests(place, _options, _work):
    """The tests that know raw images over NBD."""
    source = source_of_qemu()
    directory, log = place.path("iotests"), os.path.join(place.work, "serve.log")
    environment = dict(os.environ, TEST_DIR=place.path("images"), SOCK_DIR=place.path("s"), QSD_PROG=shutil.which("qemu-storage-daemon"))
    for name, variable in (("qemu-img", "QEMU_IMG_PROG"), ("qemu-io", "QEMU_IO_PROG"), ("qemu-nbd", "QEMU_NBD_PROG")):
        environment[variable] = shutil.which(name)
    environment["QEMU_PROG"] = script(directory, "qemu", QEMU)
    if place.mode is not None:
        words = {"LOG": log, "FUTAE": place.futae, "MODE": shlex.join(SERVED[place.mode])}
        text = SERVER
        for word, value in words.items():
            text = text.replace(word, value if word == "MODE" else shlex.quote(value))
        environment["QEMU_NBD_PROG"] = script(directory, "nbd", text)
    command = ["python3", "./check", "-raw", "-nbd", "-tap"]
    _, text = run(command, LIMIT_SECONDS, cwd=os.path.join(source, "tests", "qemu-iotests"), env=environment)
    cases = {}
    for line in text.splitlines():
        found = LINE.match(line)
        if found:
            word, case, why = found.groups()
            cases[case] = ("skipped" if why is not None else "ok" if word == "ok" else "failed", why or line)
    if not cases:
        raise Missing(f"QEMU's iotests did not start: {text.strip()[-300:]}")
    # Tests without a server would be skipped or fail in both places, and nothing of futae would have been tested.
    if place.mode is not None and not (os.path.exists(log) and os.path.getsize(log)):
        cases["server"] = ("failed", "no test started futae")
    return cases
