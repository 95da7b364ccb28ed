"""Attempts to reach the host from inside: its files, /proc, its network."""

from __future__ import annotations

from escapes.world import Attempt, attempt

ATTEMPTS: list[Attempt] = [
    # files
    attempt("read a file of the host", "files", "mount namespace", "print(open(given['canary']).read())"),
    attempt(
        "climb out by ..", "files", "mount namespace", "print(open('../' * 40 + given['canary'][1:]).read())"
    ),
    attempt("write a file of the host", "files", "mount namespace", "open(given['canary'], 'w').write('x')"),
    attempt("delete a file of the host", "files", "mount namespace", "os.unlink(given['canary'])"),
    attempt(
        "hard link to a file of the host",
        "files",
        "mount namespace",
        "os.link(given['canary'], given['folder'] + '/made')",
    ),
    attempt(
        "read /etc/shadow",
        "files",
        "an /etc of its own",
        "print('ESCAPED' if ':' in open('/etc/shadow').read() else '')",
    ),
    attempt(
        "list the caller's home",
        "files",
        "mount namespace",
        "print('ESCAPED' if os.listdir(given['home']) else '')",
    ),
    attempt(
        "write into /usr",
        "files",
        "read-only mount",
        "open('/usr/bin/rtrl-escape', 'w').close(); os.unlink('/usr/bin/rtrl-escape'); print('ESCAPED')",
        control=False,
    ),
    attempt(
        "write into the interpreter",
        "files",
        "read-only mount",
        "open(sys.prefix + '/lib/rtrl-escape.pth', 'w').close(); print('ESCAPED')",
        control=False,
    ),
    attempt(
        "canary in the host's /dev/shm",
        "files",
        "a /dev/shm of its own",
        "print([open('/dev/shm/' + x).read() for x in os.listdir('/dev/shm') if x.startswith('rtrl-can')])",
    ),
    attempt(
        "read a disk by its device",
        "files",
        "no device nodes, no capability to make one",
        "number = os.stat('/usr').st_dev\n"
        "path = f'/tmp/disk-{os.getpid()}'\n"
        "os.mknod(path, 0o60600, number)\n"
        "try: print('ESCAPED', len(open(path, 'rb').read(512)))\n"
        "finally: os.unlink(path)",
    ),
    attempt(
        "open by handle",
        "files",
        "seccomp",
        "handle = ctypes.create_string_buffer(struct.pack('II', 8, 1) + struct.pack('II', 2, 0), 144)\n"
        "mount = os.open('/usr', os.O_RDONLY)\n"
        "fd = call(libc.open_by_handle_at(mount, handle, os.O_RDONLY))\n"
        "print('ESCAPED', os.listdir(fd))",
    ),
    # /proc
    attempt(
        "environment of a process of the host",
        "/proc",
        "PID namespace",
        "print(open(f'/proc/{given[\"victim\"]}/environ').read())",
    ),
    attempt(
        "any process's root",
        "/proc",
        "PID namespace, ptrace rules",
        "for pid in [x for x in os.listdir('/proc') if x.isdigit()]:\n"
        "    try: print(open(f'/proc/{pid}/root' + given['canary']).read())\n"
        "    except OSError as error: print(error)",
    ),
    attempt(
        "core_pattern",
        "/proc",
        "started as an unprivileged user",
        "open('/proc/sys/kernel/core_pattern', 'w').write(given['core_pattern']); print('ESCAPED')",
    ),
    attempt(
        "sysrq",
        "/proc",
        "started as an unprivileged user",
        "open('/proc/sysrq-trigger', 'w').write('h'); print('ESCAPED')",
    ),
    attempt(
        "the kernel's memory",
        "/proc",
        "started as an unprivileged user",
        "print('ESCAPED', len(open('/proc/kcore', 'rb').read(64)))",
    ),
    attempt(
        "another kernel parameter",
        "/proc",
        "started as an unprivileged user",
        "text = open('/proc/sys/vm/overcommit_memory').read()\n"
        "open('/proc/sys/vm/overcommit_memory', 'w').write(text); print('ESCAPED')",
    ),
    attempt(
        "the supervisor's memory",
        "/proc",
        "supervisor is not dumpable",
        "open('/proc/1/mem', 'rb'); print('ESCAPED')",
        control=False,
    ),
    attempt(
        "the supervisor's descriptors",
        "/proc",
        "supervisor is not dumpable",
        "print('ESCAPED', os.listdir('/proc/1/fd'))",
    ),
    attempt("/sys", "/proc", "no /sys is mounted", "print('ESCAPED', os.listdir('/sys/kernel'))"),
    attempt(
        "control groups",
        "/proc",
        "no /sys is mounted",
        "path = '/sys/fs/cgroup/' + os.listdir('/sys/fs/cgroup')[0]; print('ESCAPED', path)",
    ),
    # network
    attempt(
        "TCP to the loopback",
        "network",
        "network namespace",
        "socket.create_connection(('127.0.0.1', given['port']), 2)",
    ),
    attempt(
        "TCP to the host's address",
        "network",
        "network namespace",
        "socket.create_connection((given['address'], given['port']), 2)",
    ),
    attempt(
        "UDP to the loopback",
        "network",
        "network namespace",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', given['udp']))\n"
        "time.sleep(0.1)",
    ),
    attempt(
        "UDP to the host's address",
        "network",
        "network namespace",
        "address = (given['address'], given['udp'])\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', address)\n"
        "time.sleep(0.1)",
    ),
    attempt(
        "abstract Unix socket",
        "network",
        "network namespace",
        "socket.socket(socket.AF_UNIX).connect(given['abstract'])",
    ),
    attempt(
        "Unix socket by its path",
        "network",
        "mount namespace",
        "socket.socket(socket.AF_UNIX).connect(given['unix'])",
    ),
    attempt(
        "AF_VSOCK, which no namespace holds",
        "network",
        "seccomp",
        "s = socket.socket(40, socket.SOCK_STREAM); print('ESCAPED')",
    ),
    attempt(
        "raw packets",
        "network",
        "seccomp, no capability",
        "s = socket.socket(17, socket.SOCK_RAW, 3); print('ESCAPED')",
    ),
    attempt(
        "kernel cryptography (AF_ALG)",
        "network",
        "seccomp",
        "s = socket.socket(38, socket.SOCK_SEQPACKET); print('ESCAPED')",
    ),
    attempt(
        "any other interface",
        "network",
        "network namespace",
        "names = {name for _, name in socket.if_nameindex()} - {'lo'}\nprint('ESCAPED' if names else names)",
    ),
]
