"""Attempts on what carries the sandbox: other processes, the kernel, what is inherited."""

from __future__ import annotations

from escapes.world import Attempt, attempt

ATTEMPTS: list[Attempt] = [
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
        # waited for: let go before it has stopped it stops later, and that passes for an escape
        "call(libc.ptrace(16, given['victim'], 0, 0)); print('ESCAPED')\n"
        "os.waitpid(given['victim'], 0x40000000); libc.ptrace(17, given['victim'], 0, 0)",
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
        "have the kernel start the machine's program for crashes",
        "kernel",
        "a limit of one byte for core files, which seccomp keeps",
        "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "print('ESCAPED' if resource.getrlimit(resource.RLIMIT_CORE)[0] != 1 else 'no core, no program')",
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
    attempt(
        "memory faults handled by a process (userfaultfd)",
        "kernel",
        "seccomp",
        "call(libc.syscall(323 if os.uname().machine == 'x86_64' else 282, 0)); print('ESCAPED')",
    ),
    attempt(
        "a descriptor out of a process of the host (pidfd_getfd)",
        "kernel",
        "PID namespace",
        "pidfd = os.pidfd_open(given['victim'])\ncall(libc.syscall(438, pidfd, 1, 0)); print('ESCAPED')",
    ),
    attempt(
        "memory of a process of the host by /proc",
        "/proc",
        "PID namespace",
        "open(f'/proc/{given[\"victim\"]}/mem', 'rb'); print('ESCAPED')",
    ),
    attempt(
        "physical addresses of memory (pagemap)",
        "/proc",
        "no capability",
        "page = ctypes.create_string_buffer(b'x' * 8192)\n"
        "with open('/proc/self/pagemap', 'rb') as file:\n"
        "    file.seek(ctypes.addressof(page) // 4096 * 8)\n"
        "    entry = struct.unpack('Q', file.read(8))[0]\n"
        "print('ESCAPED' if entry & (1 << 55) - 1 else 'no address in it')",
    ),
    attempt(
        "the kernel's addresses (kallsyms)",
        "/proc",
        "no capability",
        "line = open('/proc/kallsyms').readline()\nprint('ESCAPED' if int(line.split()[0], 16) else line)",
    ),
    attempt(
        "a program without a name (memfd) that is set-uid",
        "kernel",
        "no new privileges",
        "fd = os.memfd_create('id', 0)\n"
        "os.write(fd, open('/usr/bin/id', 'rb').read()); os.fchmod(fd, 0o6755)\n"
        "line = [f'/proc/self/fd/{fd}', '-u']\n"
        "found = subprocess.run(line, pass_fds=[fd], capture_output=True, text=True)\n"
        "print('ESCAPED' if found.stdout.strip() == '0' else found.stdout + found.stderr)",
    ),
    attempt(
        "watch a file of the host (inotify)",
        "files",
        "mount namespace",
        "watch = call(libc.inotify_init1(0))\n"
        "call(libc.inotify_add_watch(watch, given['canary'].encode(), 1)); print('ESCAPED')",
    ),
    attempt(
        "a handle of a file, for later (name_to_handle_at)",
        "files",
        "seccomp",
        "handle = ctypes.create_string_buffer(struct.pack('II', 128, 0), 136); number = ctypes.c_int()\n"
        "call(libc.name_to_handle_at(-100, b'/usr', handle, ctypes.byref(number), 0)); print('ESCAPED')",
    ),
    attempt(
        "be the last that the kernel kills for memory",
        "processes",
        "no capability",
        "open('/proc/self/oom_score_adj', 'wb', 0).write(b'-1000'); print('ESCAPED')",
    ),
    attempt(
        "real-time scheduling",
        "processes",
        "no capability",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); print('ESCAPED')",
    ),
    attempt(
        "the control groups' own program (release_agent)",
        "kernel",
        "no /sys is mounted",
        "open('/sys/fs/cgroup/memory/release_agent', 'w').close(); print('ESCAPED')",
        control=False,
    ),
    attempt(
        "have whoever opens a file wait (a lease)",
        "files",
        "seccomp",
        "name = f'/tmp/rtrl-lease-{os.getpid()}'; fd = os.open(name, os.O_WRONLY | os.O_CREAT)\n"
        "try: fcntl.fcntl(fd, 1024, 1); print('ESCAPED')\n"
        "finally: os.unlink(name)",
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
