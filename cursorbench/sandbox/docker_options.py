"""What a sandbox's container is started with: no network, no rights, limits, nothing writable but tmpfs.

Its first processes belong to root, which holds no capability but that of sending signals; commands are a
user's of the sandbox's own, who can therefore neither signal nor trace them, and whose processes the kernel
counts for this sandbox alone.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import PurePosixPath
from typing import Any

from cursorbench.sandbox import seccomp
from cursorbench.sandbox.boxes import FIRST_UID
from cursorbench.sandbox.cover import to_cover
from cursorbench.sandbox.protocol import Environment, Limits

LABEL = "rtrl-sandbox"
HOME = "/home/sandbox"
PRIVATE = ("/root", "/home")  # of an image; nobody but their owners may pass through them
_USERS = (FIRST_UID + 252_000_000, 16_000_000)  # behind those of bubblewrap's sandboxes
_ROOTS = 16  # processes that are not the sandbox's: the first two, and those that kill
_FILES = 4096


def label() -> str:
    """Whose a container is: this process of this machine."""
    return f"{os.uname().nodename}/{os.getpid()}"


def new_user() -> str:
    """`uid:gid`, in use nowhere."""
    number = _USERS[0] + secrets.randbelow(_USERS[1])
    return f"{number}:{number}"


def hidden(environment: Environment) -> list[str]:
    """Folders of the image that are covered, so that mounts below them can be reached."""
    tops = {f"/{PurePosixPath(inside).parts[1]}" for inside in environment.mounts}
    return sorted(tops & set(PRIVATE))


def options(environment: Environment, limits: Limits, user: str) -> dict[str, Any]:
    """Keywords of the SDK's `containers.run`, all but the image.

    Home, /tmp and /dev/shm hold a quarter of the disk limit each, beside the tree, which holds all of it. The
    container's memory is that of all four and the commands', so that files alone never use it up: the kernel
    would kill the first process, and the sandbox with it.
    """
    import docker

    uid, gid = user.split(":")
    own = f"rw,exec,nosuid,nodev,uid={uid},gid={gid}"
    part = limits.disk // 4
    tmpfs = dict.fromkeys(hidden(environment), "rw,nosuid,nodev,size=1m,mode=755")
    tmpfs |= dict.fromkeys(to_cover(environment, system=False), "ro,nosuid,nodev,noexec,size=1m")
    tmpfs |= {
        environment.workdir: f"{own},mode=755,{_size(limits.disk)}",
        "/tmp": f"{own},mode=1777,{_size(part)}",
        HOME: f"{own},mode=755,{_size(part)}",
        "/dev/shm": f"{own},mode=1777,{_size(part)}",
        "/sys": "ro,nosuid,nodev,noexec,size=1m",  # the engine mounts the machine's there
        "/sys/fs/cgroup": "ro,nosuid,nodev,noexec,size=1m",
    }
    memory = limits.memory + limits.disk + 3 * part
    return {
        "entrypoint": ["/bin/sh", "-c", "while :; do sleep 3600; done"],
        "detach": True,
        "init": True,  # reaps what commands leave behind
        "network_mode": "none",
        "ipc_mode": "private",
        "hostname": "sandbox",
        "read_only": True,
        "tmpfs": tmpfs,
        "volumes": {str(path): {"bind": at, "mode": "ro"} for at, path in environment.mounts.items()},
        "user": "0:0",
        "cap_drop": ["ALL"],
        "cap_add": ["KILL"],
        "security_opt": ["no-new-privileges", f"seccomp={json.dumps(seccomp.profile())}"],
        "mem_limit": memory,
        "memswap_limit": memory,
        "pids_limit": limits.processes + _ROOTS,
        "ulimits": [
            docker.types.Ulimit(name=name, soft=most, hard=most)
            for name, most in (("core", 1), ("nproc", limits.processes), ("nofile", _FILES))
        ],
        "labels": {LABEL: label()},
    }


def _size(count: int) -> str:
    return f"size={count},nr_inodes={max(10_000, count >> 12)}"
