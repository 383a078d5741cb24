# Our server, Linux's own and a local directory beside each other, in namespaces of their own (`unshare
# --net --mount --pid`): `beside.py` in each, as LOCAL, OURS and THEIRS in $1, which is of a file system
# with handles. $2 is the driver. Ends with 77 and a line where Linux's server cannot run.
set -eu
here=$1
missing() { echo "no server of Linux's: $1"; exit 77; }
for program in rpcbind rpc.mountd rpc.nfsd exportfs ip; do
    command -v $program >/dev/null || missing "no $program"
done
ip link set lo up
mount -t tmpfs t /run
mkdir /run/rpcbind
mount -t tmpfs t /var/lib/nfs
mkdir /var/lib/nfs/v4recovery
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
# Debian's has mountd ask this machine for the groups of a user.
if test -e /etc/nfs.conf; then mount --bind /dev/null /etc/nfs.conf; fi
mount -t nfsd n /proc/fs/nfsd 2>/dev/null || missing "no nfsd"
mkdir -m 777 $here/LOCAL $here/ours $here/theirs $here/OURS $here/THEIRS
chmod 777 $here/LOCAL $here/ours $here/theirs
rpcbind
exportfs -i -o rw,insecure,no_subtree_check,no_root_squash,fsid=7 127.0.0.1:$here/theirs
rpc.mountd --port 20048 --no-nfs-version 4
rpc.nfsd --no-nfs-version 4 --port 2050 2
$FLATPATH serve $here/ours --driver $2 --writable --no-root-squash --nfs 127.0.0.1:2049 \
    --nfs-state $here/state >$here/said 2>$here/log &
until grep -q ^ready $here/said; do kill -0 $!; sleep 0.1; done
options=vers=3,proto=tcp,mountproto=tcp,nolock,addr=127.0.0.1
mount -i -t nfs -o $options,port=2049,mountport=2049 127.0.0.1:/ $here/OURS
mount -i -t nfs -o $options,port=2050,mountport=20048 127.0.0.1:$here/theirs $here/THEIRS
for name in LOCAL OURS THEIRS; do
    (cd $here/$name; python3 -) <$here/beside.py | sed "s/^/$name: /"
done
umount $here/OURS $here/THEIRS
rpc.nfsd 0
