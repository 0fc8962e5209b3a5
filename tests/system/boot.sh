# Boots a systemd of its own, as process 1 of namespaces over a layer of this machine's files. Used by service.rs and by
# bench/outage/unit. $1 is a folder for the layer, $2 becomes /mnt.
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
  : >dev/$node
  mount --bind /dev/$node dev/$node
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount --bind "$2" mnt
rm -rf etc/systemd/system/*.wants
: >etc/fstab
for unit in systemd-binfmt systemd-firstboot systemd-modules-load systemd-pstore systemd-random-seed systemd-repart \
  systemd-sysctl systemd-timesyncd systemd-udevd systemd-update-utmp; do
  ln -sf /dev/null etc/systemd/system/$unit.service
done
for unit in dev-hugepages.mount dev-mqueue.mount proc-sys-fs-binfmt_misc.automount sys-fs-fuse-connections.mount \
  sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount systemd-udevd-control.socket \
  systemd-udevd-kernel.socket; do
  ln -sf /dev/null etc/systemd/system/$unit
done
printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' >etc/systemd/system/only-this.target
mkdir run/old
pivot_root . run/old
umount -l /run/old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  setpriv --bounding-set=-sys_time,-sys_module,-sys_boot,-sys_rawio,-syslog \
  /lib/systemd/systemd --system --unit=only-this.target
