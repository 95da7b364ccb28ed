"""The system calls that commands in a sandbox may not make: a filter for bubblewrap, a profile for Docker.

A second wall behind the namespaces: what has no use in building and testing code and is reachable
without rights (keyrings, tracing, io_uring, BPF), and what no namespace holds back (AF_VSOCK leads out of
a virtual machine from any network namespace; TIOCSTI types into a terminal; a lease of a file has whoever
opens it wait; limits that the same user sets to process 1 are its end, and that of its sandbox; with any
limit of core files but one byte, the kernel gives each crash to a program of the machine, as root, where
`core_pattern` names one). Refused calls fail with EPERM, or ENOSYS where programs then take another way
(clone3, io_uring); those that set that limit change nothing and succeed (`ulimit -c 0`). Filters are
written for x86-64 and arm64; calls of any other architecture (32-bit ones included) kill the process.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence
from typing import Any

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

# name: (x86-64, arm64); None where the call is not there
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "vhangup": (153, 58),
}
_ABSENT: dict[str, tuple[int, int]] = {
    "clone3": (435, 435),  # its flags are behind a pointer, which a filter cannot read
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_CLONE, _IOCTL, _SOCKET, _SOCKETPAIR, _FCNTL = (56, 220), (16, 29), (41, 198), (53, 199), (72, 25)
_NEW_NAMESPACES = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_FAMILIES = (1, 2, 10, 16)  # UNIX, INET, INET6, NETLINK
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_LEASE = (1024,)  # F_SETLEASE: whoever opens such a file, who copies or compares the tree too, waits 45 s
_PRLIMIT, _FIRST = (302, 261), 1  # whoever limits process 1 ends the sandbox with it
_SETRLIMIT, _CORE = (160, 164), 4  # core files stay at one byte: by it the kernel leaves crashes alone
_LOW = 0xFFFFFFFF
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def _statement(code: int, value: int) -> bytes:
    return struct.pack("HBBI", code, 0, 0, value)


def _jump(code: int, value: int, yes: int, no: int) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _refuse(error: int) -> bytes:
    return _statement(_RET, _ERRNO | error)


def _argument(index: int, high: bool = False) -> bytes:
    return _statement(_LD, _ARGUMENTS + 8 * index + 4 * high)  # a half, both machines being little-endian


def program(machine: str = "") -> bytes:
    """The filter as `struct sock_filter[]`. Raises ValueError for a machine that it is not written for."""
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise ValueError(f"no filter of system calls for {machine}")
    column, architecture = _MACHINES[machine]
    parts = [_statement(_LD, _ARCHITECTURE), _jump(_JEQ, architecture, 1, 0), _statement(_RET, _KILL)]
    parts += [_statement(_LD, _NUMBER)]
    if machine == "x86_64":
        parts += [_jump(_JGE, _X32, 0, 1), _statement(_RET, _KILL)]
    for table, error in ((_REFUSED, _EPERM), (_ABSENT, _ENOSYS)):
        for numbers in table.values():
            number = numbers[column]
            if number is not None:
                parts += [_jump(_JEQ, number, 0, 1), _refuse(error)]
    blocks = [
        (_CLONE, _clone_flags()),
        (_IOCTL, _second(_TERMINAL)),
        (_FCNTL, _second(_LEASE)),
        (_SOCKET, _family()),
        (_SOCKETPAIR, _family()),
    ]
    blocks += [(_PRLIMIT, _limit()), (_SETRLIMIT, _core())]
    for both, block in blocks:
        parts += [_jump(_JEQ, both[column], 0, len(block)), *block]
    return b"".join([*parts, _statement(_RET, _ALLOW)])


def _clone_flags() -> list[bytes]:
    allow, refuse = _statement(_RET, _ALLOW), _refuse(_EPERM)
    return [_argument(0), _jump(_JSET, _NEW_NAMESPACES, 0, 1), refuse, allow]


def _second(refused: Sequence[int]) -> list[bytes]:
    """By the second argument."""
    checks = [part for value in refused for part in (_jump(_JEQ, value, 0, 1), _refuse(_EPERM))]
    return [_argument(1), *checks, _statement(_RET, _ALLOW)]


def _limit() -> list[bytes]:
    """Of a process: none of the first, and for core files it is read alone, the third argument being NULL."""
    allow = _statement(_RET, _ALLOW)
    first = [_argument(0), _jump(_JEQ, _FIRST, 0, 1), _refuse(_EPERM)]
    core = [_argument(1), _jump(_JEQ, _CORE, 1, 0), allow]
    read = [_argument(2), _jump(_JEQ, 0, 0, 2), _argument(2, high=True), _jump(_JEQ, 0, 1, 0)]
    return [*first, *core, *read, _refuse(0), allow]


def _core() -> list[bytes]:
    return [_argument(0), _jump(_JEQ, _CORE, 0, 1), _refuse(0), _statement(_RET, _ALLOW)]


def _family() -> list[bytes]:
    allow = _statement(_RET, _ALLOW)
    checks = [part for value in _FAMILIES for part in (_jump(_JEQ, value, 0, 1), allow)]
    return [_argument(0), *checks, _refuse(_EAFNOSUPPORT)]


def profile() -> dict[str, Any]:
    """The same as a profile of Docker, which compiles it with libseccomp.

    Arguments are compared under a mask of 32 bits, as wide as the kernel reads them: a comparison of all 64
    lets a command number through whose upper half is not zero. What is no call of this machine kills.
    """
    rules: list[dict[str, Any]] = [_rule(list(_REFUSED), _EPERM), _rule(list(_ABSENT), _ENOSYS)]
    bits = [1 << bit for bit in range(32)]
    rules += [_rule(["clone"], _EPERM, (0, bit, bit)) for bit in bits if bit & _NEW_NAMESPACES]
    rules += [_rule(["ioctl"], _EPERM, (1, _LOW, value)) for value in _TERMINAL]
    rules += [_rule(["fcntl"], _EPERM, (1, _LOW, value)) for value in _LEASE]
    rules += [_rule(["prlimit64"], _EPERM, (0, _LOW, _FIRST))]
    address = [1 << bit for bit in range(64)]  # of the new limit: any but NULL
    rules += [_rule(["prlimit64"], 0, (1, _LOW, _CORE), (2, bit, bit)) for bit in address]
    rules += [_rule(["setrlimit"], 0, (0, _LOW, _CORE))]
    both = ["socket", "socketpair"]
    known = [family for family in range(32) if family not in _FAMILIES]
    rules += [_rule(both, _EAFNOSUPPORT, (0, _LOW, family)) for family in known]
    rules += [_rule(both, _EAFNOSUPPORT, (0, bit, bit)) for bit in bits if bit >= 32]
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}


def _rule(names: list[str], error: int, *arguments: tuple[int, int, int]) -> dict[str, Any]:
    """Refuse calls; of those with arguments, each (index, mask, value), where all have their values."""
    rule: dict[str, Any] = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error}
    if arguments:
        rule["args"] = [
            {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
            for index, mask, value in arguments
        ]
    return rule
