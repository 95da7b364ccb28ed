"""Attempts to reach the host from inside: files, /proc, network, processes, kernel, what is inherited."""

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
    # processes
    attempt(
        "kill a process of the host",
        "processes",
        "PID namespace",
        "os.kill(given['victim'], 9); time.sleep(0.1)",
    ),
    attempt(
        "stop a process of the host",
        "processes",
        "PID namespace",
        "os.kill(given['victim'], signal.SIGSTOP); time.sleep(0.1)",
    ),
    attempt(
        "kill every process",
        "processes",
        "PID namespace",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(-1, signal.SIGTERM); time.sleep(0.1)",
        control=False,
    ),
    attempt(
        "trace a process of the host",
        "processes",
        "PID namespace, seccomp",
        "call(libc.ptrace(16, given['victim'], 0, 0)); print('ESCAPED')\n"
        "libc.ptrace(17, given['victim'], 0, 0)",
    ),
    attempt(
        "trace the supervisor",
        "processes",
        "seccomp, not dumpable",
        "call(libc.ptrace(16, 1, 0, 0)); print('ESCAPED')",
        control=False,
    ),
    attempt(
        "read another process's memory",
        "processes",
        "seccomp",
        "buffer = ctypes.create_string_buffer(8)\n"
        "fields = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]\n"
        "Vector = type('Vector', (ctypes.Structure,), {'_fields_': fields})\n"
        "mine = Vector(ctypes.addressof(buffer), 8)\n"
        "call(libc.process_vm_readv(os.getpid(), ctypes.byref(mine), 1, ctypes.byref(mine), 1, 0))\n"
        "print('ESCAPED')",
    ),
    attempt(
        "System V shared memory of the host",
        "processes",
        "IPC namespace",
        "libc.shmat.restype = ctypes.c_void_p\n"
        "place = libc.shmat(given['shared'], None, 0o10000)\n"
        "if place in (None, 2**64 - 1): raise OSError(ctypes.get_errno(), 'shmat')\n"
        "print(ctypes.string_at(place, 32).decode())",
    ),
    attempt(
        "a higher priority than the host's processes",
        "processes",
        "no capability",
        "os.setpriority(os.PRIO_PROCESS, 0, -20); print('ESCAPED')",
    ),
    # kernel
    attempt(
        "mount",
        "kernel",
        "seccomp, no capability",
        "call(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)); print('ESCAPED')",
        control=False,
    ),
    attempt(
        "a user namespace",
        "kernel",
        "seccomp, bubblewrap's --disable-userns",
        "call(libc.unshare(0x10000000)); print('ESCAPED')",
    ),
    attempt(
        "a user namespace by clone",
        "kernel",
        "seccomp, bubblewrap's --disable-userns",
        "pid = call(libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x10000011, 0, 0, 0, 0))\n"
        "if pid == 0: os._exit(0)\n"
        "os.waitpid(pid, 0); print('ESCAPED')",
    ),
    attempt(
        "join a namespace",
        "kernel",
        "seccomp",
        "call(libc.setns(os.open('/proc/self/ns/net', os.O_RDONLY), 0)); print('ESCAPED')",
    ),
    attempt("chroot", "kernel", "no capability", "os.chroot('/'); print('ESCAPED')"),
    attempt(
        "a device node",
        "kernel",
        "no capability",
        "os.mknod('/tmp/device', 0o20600, os.makedev(1, 1))\nos.unlink('/tmp/device'); print('ESCAPED')",
    ),
    attempt(
        "a set-uid program",
        "kernel",
        "no new privileges, nosuid mounts",
        "import shutil; shutil.copy('/usr/bin/id', '/tmp/rtrl-id'); os.chmod('/tmp/rtrl-id', 0o6755)\n"
        "subprocess.run(['/usr/bin/su', '-c', 'true'], stdin=subprocess.DEVNULL)\n"
        "text = subprocess.run(['/tmp/rtrl-id', '-u'], capture_output=True, text=True).stdout\n"
        "print('ESCAPED' if text.strip() == '0' else text)\n"
        "os.unlink('/tmp/rtrl-id')",
    ),
    attempt(
        "become root",
        "kernel",
        "one user is mapped",
        "os.setuid(0); print('ESCAPED')",
    ),
    attempt(
        "BPF",
        "kernel",
        "seccomp",
        "number = 321 if os.uname().machine == 'x86_64' else 280\n"
        "map_of_four = ctypes.create_string_buffer(struct.pack('IIIIIIII', 1, 4, 4, 4, 0, 0, 0, 0), 128)\n"
        "call(libc.syscall(number, 0, map_of_four, 128)); print('ESCAPED')",
    ),
    attempt(
        "performance counters",
        "kernel",
        "seccomp",
        "attributes = ctypes.create_string_buffer(struct.pack('IIQ', 1, 128, 0), 128)\n"
        "call(libc.syscall(298 if os.uname().machine == 'x86_64' else 241, attributes, 0, -1, -1, 0))\n"
        "print('ESCAPED')",
    ),
    attempt(
        "io_uring",
        "kernel",
        "seccomp",
        "call(libc.syscall(425, 4, ctypes.create_string_buffer(120))); print('ESCAPED')",
    ),
    attempt(
        "the clock",
        "kernel",
        "seccomp, no capability",
        "time.clock_settime(time.CLOCK_REALTIME, time.time()); print('ESCAPED')",
    ),
    attempt(
        "the host's name",
        "kernel",
        "UTS namespace, no capability",
        "socket.sethostname(socket.gethostname()); print('ESCAPED')",
    ),
    attempt(
        "the kernel's log",
        "kernel",
        "seccomp",
        "call(libc.klogctl(10, 0, 0)); print('ESCAPED')",
    ),
    attempt(
        "a key of the caller's keyring",
        "kernel",
        "seccomp",
        "machine = os.uname().machine == 'x86_64'\n"
        "key = call(libc.syscall(250 if machine else 219, 10, -3, b'user', b'rtrl-canary', 0))\n"
        "buffer = ctypes.create_string_buffer(64)\n"
        "call(libc.syscall(250 if machine else 219, 11, key, buffer, 64)); print(buffer.value.decode())",
    ),
    # what is inherited
    attempt(
        "the caller's environment",
        "inherited",
        "a clear environment",
        "print(dict(os.environ))",
    ),
    attempt(
        "descriptors of the caller",
        "inherited",
        "close-on-exec, the supervisor closes the rest",
        "open_ones = {int(x) for x in os.listdir('/proc/self/fd')} - {0, 1, 2, 3}\n"
        "print('ESCAPED' if open_ones else open_ones)",
        control=False,
    ),
    attempt(
        "typing into the terminal (TIOCSTI)",
        "inherited",
        "no terminal, seccomp",
        "import pty; master, slave = pty.openpty(); os.setsid()\n"
        "fcntl.ioctl(slave, 0x540E, 0); fcntl.ioctl(slave, 0x5412, b'x'); print('ESCAPED')",
    ),
    attempt(
        "a 32-bit system call",
        "kernel",
        "seccomp kills it",
        "code = mmap.mmap(-1, 4096, prot=7); code.write(bytes.fromhex('b814000000cd80c3'))\n"
        "address = ctypes.addressof(ctypes.c_char.from_buffer(code))\n"
        "print('ESCAPED' if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 else 'no such call')",
        control=False,
    ),
]
