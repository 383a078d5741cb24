"""Calls whose outcome a server decides, a line each: what it is, then `;` and what came of it. Runs
as root in an empty directory that anyone may write in. Local groups of the users are not asked."""
import errno, os, stat

os.umask(0)
# Who calls, with which groups beside a group of the same number. Files are 1000's, in group 2000.
WHO = (("owner", 1000, [2000]), ("member", 1001, [2000]), ("other", 1002, []), ("root", 0, []))


def said(what):
    try:
        return what()
    except OSError as error:
        return errno.errorcode[error.errno]


def by(user, groups, what):
    """What it gives as this user. A process of its own for each would be most of the time."""
    os.setgroups(groups)
    os.setegid(user)
    os.seteuid(user)
    came = said(what)
    os.seteuid(0)
    os.setegid(0)
    os.setgroups([])
    return str(came)


def show(*words):
    print(*words[:-1], sep=" ", end="; ")
    print(words[-1])


def look(name):
    found = os.lstat(name)
    return "%o %d %d" % (found.st_mode, found.st_uid, found.st_gid)


def make(name, mode, user=1000, group=2000, content=b""):
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(fd, content)
    os.close(fd)
    os.chown(name, user, group)
    os.chmod(name, mode)


def made():
    for parent in (0o777, 0o2777, 0o3777):
        within = "in%o" % parent
        os.mkdir(within)
        os.chown(within, 1000, 2000)
        os.chmod(within, parent)
        for who, user, groups in WHO:
            for mode in (0, 0o640, 0o755, 0o1777, 0o2755, 0o2770, 0o4755, 0o7777):
                at = "%s/%s-%o" % (within, who, mode)
                kinds = {
                    "file": lambda: os.close(os.open(at + "file", os.O_CREAT | os.O_WRONLY, mode)),
                    "exclusive": lambda: os.close(
                        os.open(at + "exclusive", os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
                    ),
                    "directory": lambda: os.mkdir(at + "directory", mode),
                    "pipe": lambda: os.mkfifo(at + "pipe", mode),
                }
                for kind, call in kinds.items():
                    came = by(user, groups, lambda: (call(), look(at + kind))[1])
                    show("made", within, kind, "%o" % mode, "by", who, came)


def given():
    for who, user, groups in WHO:
        for mode in (0o644, 0o6755, 0o2745):
            for to in ((1001, -1), (-1, 2000), (-1, 3000), (1000, 1000), (1001, 2000)):
                name = "c-%s-%o-%d-%d" % (who, mode, *to)
                make(name, mode, 1000, 1000)
                came = by(user, groups, lambda: os.chown(name, *to))
                show("chown", "%o" % mode, "to", *to, "by", who, came + " " + look(name))
        for mode in (0o2755, 0o1644, 0o4755, 0o7777):
            name = "m-%s-%o" % (who, mode)
            make(name, 0o600, 1000, 3000)
            came = by(user, groups, lambda: os.chmod(name, mode))
            show("chmod", "%o" % mode, "by", who, came + " " + look(name))


def written():
    for mode in (0o666, 0o2666, 0o4777, 0o6777):
        for who, user, groups in WHO:
            for how in ("O_TRUNC", "truncate", "write"):
                name = "w-%o-%s-%s" % (mode, who, how)
                make(name, mode, content=b"content")

                def change():
                    if how == "truncate":
                        return os.truncate(name, 3)
                    fd = os.open(name, os.O_WRONLY | (os.O_TRUNC if how == "O_TRUNC" else 0))
                    os.write(fd, b"new")
                    os.fsync(fd)
                    os.close(fd)

                came = by(user, groups, change)
                size = os.stat(name).st_size
                show(how, "%o" % mode, "by", who, "%s %s %d" % (came, look(name), size))


def exclusive():
    for mode in (0, 0o200, 0o400, 0o640, 0o4711):
        name = "x-%o" % mode

        def first():
            fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
            os.write(fd, b"x" * 100000)
            os.fsync(fd)
            size = os.fstat(fd).st_size
            os.close(fd)
            return size

        show("O_EXCL", "%o" % mode, "first", by(1000, [], first) + " " + look(name))
        second = lambda: os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        show("O_EXCL", "%o" % mode, "second", by(1000, [], second))
    os.symlink("nowhere", "dangling")
    through = said(lambda: os.open("dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    show("O_EXCL", "through a link", through)
    for number in range(8):
        name = "race-%d" % number
        again = lambda: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        reader, writer = os.pipe()
        for _ in range(3):
            if os.fork() == 0:
                os.write(writer, b"1" if said(again) is None else b"0")
                os._exit(0)
        for _ in range(3):
            os.wait()
        os.close(writer)
        show("O_EXCL", "by three at once", number, os.read(reader, 9).count(b"1"))
        os.close(reader)


def others():
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    make("sticky/a", 0o666)
    make("sticky/b", 0o666, 1001)
    calls = {
        "unlink": lambda: os.unlink("sticky/a"),
        "rename": lambda: os.rename("sticky/a", "sticky/c"),
        "rename over": lambda: os.rename("sticky/b", "sticky/a"),
        "rename of one's own": lambda: os.rename("sticky/b", "sticky/d"),
        "link": lambda: os.link("sticky/a", "linked"),
    }
    for name, call in calls.items():
        show("sticky directory:", name, by(1001, [], call))
    for kind in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK):
        for who, user, groups in WHO:
            name = "in777/node-%o-%s" % (kind, who)
            call = lambda: os.mknod(name, kind | 0o640, os.makedev(1, 3))
            show("mknod", "%o" % kind, "by", who, by(user, groups, lambda: (call(), look(name))[1]))


for part in (made, given, written, exclusive, others):
    part()
