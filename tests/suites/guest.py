"""Suites in a Debian guest with a kernel of its own: xfstests on two disks, and blktests' group `nbd` with its server in the guest.

The plain run has qemu-nbd where the others have `futae serve`."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time

from places import LIMIT_SECONDS, SERVED, WAIT_SECONDS, Missing, must, run, say, source_of, xfstests_source

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
# In the name of the image that is kept, so that another list of packages is another image.
EDITION = 1
PACKAGES = (
    "linux-image-amd64,initramfs-tools,udev,kmod,procps,perl,file,bc,gawk,acl,attr,e2fsprogs,xfsprogs,util-linux,bsdextrautils,psmisc,quota,uuid-runtime,libaio1,liburing2,"
    "libgdbm6,libssl3,fio,dbench,nbd-server,nbd-client,parted,libnl-utils,dmsetup,iproute2,python3-minimal,hostname,mount"
)
TOOLS = {"mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs", "qemu-system-x86_64": "qemu-system-x86", "qemu-nbd": "qemu-utils"}
# The first process of the guest. Its last disk has the suite, and the script that runs it.
FIRST = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb
mount -t tmpfs none /tmp
mkdir -p /dev/pts /dev/shm /suite; mountpoint -q /dev/pts || mount -t devpts none /dev/pts; mount -t tmpfs none /dev/shm
mount -t debugfs none /sys/kernel/debug
ip link set lo up; hostname guest
/lib/systemd/systemd-udevd --daemon; udevadm trigger; udevadm settle
mount "$(blkid --label suite)" /suite && cd /suite && bash ./run
echo "suite: ended with status $?"
sync; echo o > /proc/sysrq-trigger; sleep 60
"""
# What the first process says at its end.
END = "suite: ended with status"
# QEMU translates a program once if it is at the same address in each process. It takes some four times longer for a shell script otherwise.
# What the kernel does against faults of processors costs a little more, and here protects nothing.
FOR_EMULATION = "norandmaps nokaslr mitigations=off"
# A guest that prints nothing for so long hangs. Each test prints a line.
QUIET_SECONDS = 900
USERS = ["fsgqa:x:1001:1001::/tmp:/bin/bash", "fsgqa2:x:1002:1002::/tmp:/bin/bash", "123456-fsgqa:x:1003:1003::/tmp:/bin/bash"]
DISK_BYTES = 1 << 30
MEMORY = "1536M"
# The tests mount images, and not each of them loads the module for it; they run commands as the users, who need lines in /etc/shadow, and connect to this machine.
XFSTESTS = """modprobe loop; pwconv; echo "127.0.0.1 localhost" > /etc/hosts
mkdir -p /mnt/test /mnt/scratch /tmp/results
export FSTYP=ext4 TEST_DEV=/dev/disk/by-id/virtio-test TEST_DIR=/mnt/test SCRATCH_DEV=/dev/disk/by-id/virtio-scratch SCRATCH_MNT=/mnt/scratch RESULT_BASE=/tmp/results
TEST_DEV=$(realpath $TEST_DEV) SCRATCH_DEV=$(realpath $SCRATCH_DEV)
mkfs.ext4 -q $TEST_DEV
cd {directory} && DIFF_LENGTH=60 ./check {tests}
# No line may look like the result of a test.
tail -n 60 /tmp/results/*/*.dmesg /tmp/results/*.dmesg 2>/dev/null | sed "s/^/| /"
umount /mnt/test /mnt/scratch 2>/dev/null
"""
BLKTESTS = """echo "127.0.0.1 localhost" > /etc/hosts; cd {directory}
cp /suite/nbd-server /usr/local/sbin/ 2>/dev/null
export PATH=/usr/local/sbin:$PATH
./check nbd
grep "^served" /tmp/serve.log
"""
# What the group starts as nbd-server: `-p PIDFILE -C CONFIGURATION`, of one export, or a port and a file.
SERVER = """#!/bin/bash
if [[ $1 == -p ]]; then
    file=$(sed -n 's/^exportname=//p' "$4") listen=tcp:127.0.0.1:10809 pid=$2
else
    file=$2 listen=tcp:127.0.0.1:$1 pid=/tmp/pid
fi
# The group ends a server by its process' name.
ln -sf /suite/{program} /run/nbd-server
setsid bash -c 'echo $$ > "$0"; exec /run/nbd-server serve --cache 16MiB --export "export=$1" --listen "$2" {mode}' "$pid" "$file" "$listen" < /dev/null &>> /tmp/serve.log &
"""


def image(work):
    """The guest's root file system with its kernel, which is made once: the paths of the kernel, its initial file system, and the image."""
    for program, package in TOOLS.items():
        if not shutil.which(program):
            raise Missing(f"{program} is not installed; Debian's package is called {package}")
    with open("/etc/os-release", encoding="utf-8") as file:
        release = dict(line.strip().split("=", 1) for line in file if "=" in line)
    if release["ID"] != "debian":
        raise Missing("this machine is no Debian, so its programs may not run in one")
    place = os.path.join(os.path.abspath(TARGET), "suites", f"guest-{release['VERSION_CODENAME']}-{EDITION}")
    if not os.path.isdir(place):
        make_image(place, release["VERSION_CODENAME"], work)
    return [os.path.join(place, name) for name in ("vmlinuz", "initrd.img", "root.img")]


def make_image(place, codename, work):
    """Makes the directory with the guest's kernel and image."""
    say("making the guest's image")
    root = os.path.join(work, "root")
    must("mmdebstrap", "--quiet", "--variant=minbase", '--aptopt=APT::Sandbox::User "root"', f"--include={PACKAGES}", codename, root)
    with open(os.path.join(root, "first"), "w", encoding="utf-8") as file:
        file.write(FIRST)
    os.chmod(file.name, 0o755)
    for name, lines in (("passwd", USERS), ("group", [f"{line.split(':')[0]}:x:{line.split(':')[3]}:" for line in USERS])):
        with open(os.path.join(root, "etc", name), "a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    made = os.path.join(work, "guest")
    os.mkdir(made)
    boot = os.path.join(root, "boot")
    for name in os.listdir(boot):
        for kind in ("vmlinuz", "initrd.img"):
            if name.startswith(kind):
                shutil.copy(os.path.join(boot, name), os.path.join(made, kind))
    must("mkfs.ext4", "-q", "-L", "root", "-d", root, os.path.join(made, "root.img"), "3G")
    shutil.rmtree(root)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    shutil.move(made, place)


def disk_of_suite(script, path, size, *sources):
    """Makes the disk with a suite: these files and directories, and the script that runs it. The options of QEMU for it."""
    directory = f"{path}.files"
    os.mkdir(directory)
    for source in sources:
        name = os.path.basename(os.path.abspath(source))
        if os.path.isdir(source):
            shutil.copytree(source, os.path.join(directory, name), symlinks=True, ignore=shutil.ignore_patterns(".git", "*.o", "results"))
        else:
            shutil.copy(source, os.path.join(directory, name))
    with open(os.path.join(directory, "run"), "w", encoding="utf-8") as file:
        file.write(script)
    must("mkfs.ext4", "-q", "-F", "-L", "suite", "-d", directory, path, size)
    shutil.rmtree(directory)
    return ["-drive", f"file={path},format=raw,if=virtio"]


def vhost_disk(name, socket):
    """The options of QEMU for a disk by vhost-user. Its serial number is the name that the server gives it."""
    return ["-chardev", f"socket,id={name},path={socket}", "-device", f"vhost-user-blk-pci,chardev={name}"]


def boot(files, disks, console, limit):
    """Runs a guest with these disks to its end, or until it prints nothing any more; what it printed, which is in the file `console` from the start."""
    kernel, initial, root = files
    command = ["qemu-system-x86_64", "-machine", "q35,memory-backend=memory", "-accel", "tcg,thread=multi", "-smp", "2", "-m", MEMORY]
    command += ["-object", f"memory-backend-memfd,id=memory,size={MEMORY},share=on", "-nographic", "-no-reboot", "-nic", "none"]
    command += ["-kernel", kernel, "-initrd", initial, "-append", f"root=LABEL=root rw console=ttyS0 quiet loglevel=1 init=/first panic=-1 {FOR_EMULATION}"]
    command += ["-drive", f"file={root},format=raw,if=virtio,snapshot=on", *disks]
    began = printed = time.monotonic()
    size = 0
    with open(console, "w", encoding="utf-8") as file:
        guest = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        while guest.poll() is None:
            now, before, size = time.monotonic(), size, os.path.getsize(console)
            printed = now if size != before else printed
            if now - began > limit or now - printed > QUIET_SECONDS:
                break
            time.sleep(0.5)
    finally:
        guest.kill()
        guest.wait()
    with open(console, encoding="utf-8", errors="replace") as file:
        text = file.read()
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", text)


class Guest:
    """A guest's disks and servers."""

    def __init__(self, place, work, keep):
        self.place, self.mode, self.keep = place, place.mode, keep
        self.files = image(work)
        self.directory = place.path("guest")
        self.disks = []

    def path(self, name):
        """A file beside its disks."""
        return os.path.join(self.directory, name)

    def serve(self, *names):
        """Starts a server of an empty disk for each name."""
        exports = []
        for name in names:
            with open(self.path(f"{name}.img"), "wb") as file:
                file.truncate(DISK_BYTES)
            socket = self.path(f"{name}.sock")
            if self.mode is None:
                command = ["qemu-nbd", "--persistent", "--format=raw", "--discard=unmap", f"--socket={socket}", self.path(f"{name}.img")]
                self.place.run_beside("qemu-nbd", *command)
            else:
                exports += ["--export", f"{name}={self.path(f'{name}.img')}", "--listen", f"{name}={'vhost-user' if 'vhost' in self.mode else 'unix'}:{socket}"]
            if self.mode is not None and "vhost" in self.mode:
                self.disks += vhost_disk(name, socket)
            else:
                self.disks += ["-blockdev", f"nbd,node-name={name},server.type=unix,server.path={socket},export={name if self.mode else ''},discard=unmap"]
                self.disks += ["-device", f"virtio-blk-pci,drive={name},serial={name}"]
        if exports:
            self.place.start("serve", "--cache", "16MiB", *exports, *SERVED[self.mode])
        until = time.monotonic() + WAIT_SECONDS
        while not all(os.path.exists(self.path(f"{name}.sock")) for name in names):
            if time.monotonic() > until:
                sys.exit("suites: the servers of the guest's disks do not listen")
            time.sleep(0.1)

    def boot(self, suite, limit):
        """Runs the guest to its end, and then ends the servers; what it printed."""
        console = self.path("console")
        if self.keep:
            os.makedirs(self.keep, exist_ok=True)
            console = os.path.join(self.keep, f"{suite}-{self.mode or 'plain'}.log")
        text = boot(self.files, self.disks, console, limit)
        self.place.end_servers()
        return text


def cases_of(text, expression):
    """The cases of a `check`: a line begins with the name, and ends with the result. One more is how the guest ended, since a guest that hangs
    must not pass for one that cannot be had."""
    cases = {"guest": ("ok" if END in text else "failed", text.strip()[-600:])}
    for name, rest in re.findall(expression, text, re.M):
        word = "skipped" if "[not run]" in rest else "ok" if re.search(r"^\d+s$|\[passed\]", rest) else "failed"
        cases[name] = (word, rest.strip())
    if len(cases) == 1:
        cases["check"] = ("failed", f"it ran nothing: {text.strip()[-600:]}")
    return cases


def guest_xfstests(place, options, work):
    """xfstests on an ext4 of the guest."""
    suite = xfstests_source()
    guest = Guest(place, work, options.keep)
    script = XFSTESTS.format(directory=shlex.quote(os.path.basename(suite)), tests=shlex.join(shlex.split(options.tests)))
    guest.disks += disk_of_suite(script, guest.path("suite.img"), "1G", suite)
    guest.serve("test", "scratch")
    text = guest.boot("guest-xfstests", 12 * LIMIT_SECONDS)
    cases = cases_of(text, r"^(\w+/\d+) +(?:\d+s \.\.\. )? *(.*)$")
    status, text = run(["e2fsck", "-fn", guest.path("test.img")])
    cases["e2fsck"] = ("ok" if status == 0 else "failed", text.strip())
    return cases


def blktests(place, options, work):
    """blktests' group `nbd`."""
    suite = source_of("BLKTESTS", "src/nbdsetsize", "clone https://github.com/linux-blktests/blktests.git, build it by make")
    guest = Guest(place, work, options.keep)
    files = [suite]
    if place.mode is not None:
        server = guest.path("nbd-server")
        with open(server, "w", encoding="utf-8") as file:
            file.write(SERVER.replace("{mode}", shlex.join(SERVED[place.mode])).replace("{program}", shlex.quote(os.path.basename(place.futae))))
        os.chmod(server, 0o755)
        files += [server, place.futae]
    script = BLKTESTS.format(directory=shlex.quote(os.path.basename(suite)))
    guest.disks += disk_of_suite(script, guest.path("suite.img"), "1G", *files)
    text = guest.boot("blktests", LIMIT_SECONDS)
    cases = cases_of(text, r"^(nbd/\d+) \(.*\) +(\[.*)$")
    if place.mode is not None and not re.search(r"^served [1-9]", text, re.M):
        cases["server"] = ("failed", "futae served nothing")
    return cases
