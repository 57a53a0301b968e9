# Makes a Debian's system manager the first process of namespaces of its own: sh debian.sh ROOT PLACE. PLACE/srv is its /srv/futae.
set -e
base=$1 place=$2
mount --make-rprivate /
cd "$place/own"
mount -t tmpfs none .
cd "$place/own"
mkdir upper work root
mount -t overlay overlay -o "lowerdir=$base,upperdir=upper,workdir=work" root
mkdir -p root/srv/futae root/old
mount --bind "$place/srv" root/srv/futae
mount -t proc proc root/proc
# The kernel's settings are this machine's.
mount --bind root/proc/sys root/proc/sys
mount -o remount,bind,ro root/proc/sys
mount -t sysfs -o ro sys root/sys
mount -t cgroup2 cgroup root/sys/fs/cgroup
mount -t tmpfs -o mode=755 none root/dev
mkdir root/dev/pts root/dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts root/dev/pts
ln -s pts/ptmx root/dev/ptmx
ln -s /proc/self/fd root/dev/fd
for name in null zero full random urandom tty; do
    : >"root/dev/$name"
    mount --bind "/dev/$name" "root/dev/$name"
done
if test -c /dev/fuse; then
    : >root/dev/fuse
    mount --bind /dev/fuse root/dev/fuse
fi
mount -t tmpfs -o mode=755 none root/run
cd root
pivot_root . old
exec env -i container=futae sh -c 'umount -l /old; exec setpriv --bounding-set -sys_module,-sys_time,-sys_boot /lib/systemd/systemd --log-target=null'
