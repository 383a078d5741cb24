# The Debian package in a virtual machine whose first process is systemd: installed, run by its unit,
# without io_uring as administrators refuse it, and removed. $1 is the package. Each function is a
# test, which fails at its first command that fails; `package.rs` has their names, in this order.

no() {
    if "$@"; then
        echo "unexpected: $*"
        return 1
    fi
}

# Prints what is begun, and when, past what is kept for a failure.
step() { echo "package: $(cut -d. -f1 /proc/uptime) s: $*" >&3; }

active() { systemctl is-active --quiet flatpath; }

# How long a wait may take, and a test with all of its waits, in seconds: all is slow on an emulated
# processor, a call of systemctl takes one.
WAIT_MAX=150
TEST_MAX=600

# Waits for a command to succeed.
until_true() {
    local end=$((SECONDS + WAIT_MAX))
    step "waits for: $*"
    until "$@"; do
        if [ $SECONDS -ge $end ]; then
            echo "never came: $*"
            return 1
        fi
        sleep 0.2
    done
}

served() { test "$(curl --silent --show-error --max-time 120 http://127.0.0.1:8080/index.html)" = hello; }

# What the start that is running says of its driver: of older starts the log has the same line.
driver() {
    local run
    run=$(systemctl show --property InvocationID --value flatpath)
    journalctl --no-pager --output cat "_SYSTEMD_INVOCATION_ID=$run" | sed -n 's/.* driver \([a-z]*\): .*/\1/p'
}

is_driver() { test "$(driver)" = "$1"; }

restarted_on() {
    step "restarts, for $1"
    systemctl restart flatpath
    until_true active
    until_true is_driver "$1"
    served
}

# io_uring is used from Linux 6.0 on.
usual() {
    case $(uname -r) in
        [1-5].*) echo epoll ;;
        *) echo uring ;;
    esac
}

it_is_installed_and_started_by_its_unit() {
    # What a server left that ran on this machine without the package: systemd cannot move a directory
    # of the layer below. And what images of containers have, lest anything starts when it is installed.
    rm -rf /var/lib/flatpath /usr/sbin/policy-rc.d
    step "installs"
    # The trigger of man-db reads all manual pages of the machine.
    dpkg --no-triggers --install "$1"
    until_true active
    systemctl is-enabled --quiet flatpath
    echo hello >/var/lib/flatpath/public/index.html
    until_true served
    until_true is_driver "$(usual)"
    test "$(ps -o user= -p "$(systemctl show --property MainPID --value flatpath)")" != root
}

it_reads_its_settings_again() {
    local before
    before=$(systemctl show --property MainPID --value flatpath)
    step "reloads"
    systemctl reload flatpath
    active
    test "$(systemctl show --property MainPID --value flatpath)" = "$before"
    served
}

it_runs_where_a_setting_of_the_kernel_refuses_io_uring() {
    if ! test -e /proc/sys/kernel/io_uring_disabled; then
        echo "not on this kernel: $FUNCNAME: kernel.io_uring_disabled (Linux 6.6)" >&3
        return
    fi
    sysctl --quiet --write kernel.io_uring_disabled=2
    restarted_on epoll
    sysctl --quiet --write kernel.io_uring_disabled=0
    restarted_on "$(usual)"
}

it_runs_where_seccomp_refuses_io_uring() {
    local place=/etc/systemd/system/flatpath.service.d
    mkdir -p $place
    printf '[Service]\nSystemCallFilter=~io_uring_setup io_uring_enter io_uring_register\n' >$place/refused.conf
    systemctl daemon-reload
    restarted_on epoll
    rm $place/refused.conf
    systemctl daemon-reload
    restarted_on "$(usual)"
}

it_is_removed_and_its_files_stay_until_it_is_purged() {
    step "removes"
    dpkg --no-triggers --remove flatpath
    no active
    no test -e /usr/bin/flatpath
    test -e /etc/flatpath/flatpath.toml
    step "purges"
    dpkg --no-triggers --purge flatpath
    no test -e /etc/flatpath/flatpath.toml
    no test -e /var/log/private/flatpath
    test -e /var/lib/private/flatpath/public/index.html
}

# A shell does not end at a failure in a condition, so each test has one of its own.
if [ "$1" = --only ]; then
    set -e
    "$2" "$3"
    exit
fi
exec 3>&1
package=$1
shift
for name; do
    step "$name"
    if said=$(timeout --kill-after=5 $TEST_MAX /bin/bash "$0" --only "$name" "$package" 2>&1); then
        echo "test $name ... ok"
    else
        # As a test of ours would say it.
        printf 'test %s ... FAILED\n---- %s stdout ----\nin %s panicked at package.sh\n%s\n' \
            "$name" "$name" "$name" "$(echo "$said" | tail -n 1)"
        systemctl --no-pager status flatpath 2>&1 | sed 's/^/---- /'
    fi
done
