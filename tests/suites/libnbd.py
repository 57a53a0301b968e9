"""libnbd's tests of other servers, against `futae serve` and against qemu-nbd."""

import os
import shlex
import shutil
import stat

from places import Missing, run

# What each program is compiled with, and which TLS its server has.
CERTIFICATES = ["-DCERTS=1"]
KEYS = ["-DPSK=1"]
REQUIRE = ["-DTLS_MODE=LIBNBD_TLS_REQUIRE"]
ALLOW = ["-DTLS_MODE=LIBNBD_TLS_ALLOW"]
FALLBACK = ALLOW + ["-DTLS_FALLBACK=1"]
CASES = {
    "interop": ("interop.c", [], None),
    "interop-certificates": ("interop.c", CERTIFICATES + REQUIRE, "certificates"),
    "interop-certificates-allowed": ("interop.c", CERTIFICATES + ALLOW, "certificates"),
    "interop-certificates-fallback": ("interop.c", CERTIFICATES + FALLBACK, None),
    "interop-keys": ("interop.c", KEYS + REQUIRE, "keys"),
    "interop-keys-allowed": ("interop.c", KEYS + ALLOW, "keys"),
    "interop-keys-fallback": ("interop.c", KEYS + FALLBACK, None),
    "list-exports": ("list-exports.c", ['-DEXPORTS="disk"', '-DDESCRIPTIONS=""'], None),
}
# futae takes a socket that is passed to it by its address, which the test draws.
FUTAE = """#!/bin/sh
socket=$(readlink /proc/self/fd/3)
inode=${{socket#socket:[}}
address=$(awk -v inode="${{inode%]}}" '$7 == inode {{ print $8 }}' /proc/net/unix)
exec {futae} serve --cache 1MiB --export "disk=$1" --listen "unix:$address" {tls}
"""
QEMU = """#!/bin/sh
exec qemu-nbd --format raw --export-name disk {tls} "$1"
"""


def source_of_libnbd():
    """The directory of libnbd's source."""
    source = os.environ.get("LIBNBD")
    if not source or not os.path.exists(os.path.join(source, "interop", "interop.c")):
        raise Missing("LIBNBD names no directory with libnbd's source; clone https://gitlab.com/nbdkit/libnbd.git, and write LIBNBD=DIRECTORY")
    for program, package in (("cc", "gcc"), ("certtool", "gnutls-bin"), ("psktool", "gnutls-bin"), ("qemu-nbd", "qemu-utils")):
        if not shutil.which(program):
            raise Missing(f"{program} is not installed; Debian's package is called {package}")
    return os.path.abspath(source)


def secrets(source, tests):
    """Makes certificates and keys where the tests look for them."""
    os.makedirs(tests)
    pki, keys = os.path.join(tests, "pki"), os.path.join(tests, "keys.psk")
    environment = dict(os.environ, SRCDIR=os.path.join(source, "tests"), CERTTOOL=shutil.which("certtool"))
    status, text = run(["bash", os.path.join(source, "tests", "make-pki.sh"), pki], env=environment, cwd=tests)
    if status == 0:
        status, text = run(["psktool", "-u", "alice", "-p", keys], cwd=tests)
    if status != 0:
        raise Missing(f"no certificates and keys could be made for libnbd's tests: {text.strip()[-300:]}")
    for name in (keys, os.path.join(pki, "server-key.pem")):
        os.chmod(name, stat.S_IRUSR | stat.S_IWUSR)
    return {
        "futae": {
            None: "",
            "certificates": f"--tls-cert {pki}/server-cert.pem --tls-key {pki}/server-key.pem",
            "keys": f"--tls-psk {keys}",
        },
        "qemu": {
            None: "",
            "certificates": f"--object tls-creds-x509,id=tls0,endpoint=server,dir={pki} --tls-creds tls0",
            "keys": f"--object tls-creds-psk,id=tls0,endpoint=server,dir={tests} --tls-creds tls0",
        },
    }


def libnbd(place, options, work):
    """Connections with and without TLS, and the list of exports."""
    source = source_of_libnbd()
    # The tests name their certificates from a directory beside.
    directory = place.path("interop")
    with open(os.path.join(directory, "config.h"), "w", encoding="utf-8") as file:
        file.write("#define HAVE_GNUTLS_NO_SIGNAL 1\n")
    tls = secrets(source, os.path.join(place.work, "tests"))
    cases = {}
    for name, (program, defined, kind) in CASES.items():
        server, test = os.path.join(directory, f"{name}.sh"), os.path.join(directory, name)
        with open(server, "w", encoding="utf-8") as file:
            if place.mode is None:
                file.write(QEMU.format(tls=tls["qemu"][kind]))
            else:
                file.write(FUTAE.format(futae=shlex.quote(place.futae), tls=tls["futae"][kind]))
        os.chmod(server, 0o755)
        more = ["-DSOCKET_ACTIVATION=1", "-DNEEDS_TMPFILE=1", f'-DSERVER="{server}"', "-DSERVER_PARAMS=TMPFILE", '-DEXPORT_NAME="disk"']
        included = [f"-I{directory}", f"-I{source}/interop", f"-I{source}/common/include"]
        compiled = ["cc", "-o", test, *included, *more, *defined, f"{source}/interop/{program}", f"{source}/tests/requires.c", "-lnbd"]
        status, text = run(compiled)
        if status != 0:
            raise Missing(f"{program} cannot be compiled (Debian's package of the library is called libnbd-dev): {text.strip()[-300:]}")
        status, text = run([test], 60, cwd=directory)
        word = "ok" if status == 0 else "skipped" if status == 77 else "failed"
        cases[name] = (word, (text.strip().splitlines() or [f"status {status}"])[-1])
    return cases
