"""The longest times that settings may name, and what they have to leave of each other. Import-light."""

LONGEST_S = 1e9  # thirty years; times in ms and what is added to them have to fit 64 bits
WAIT_S = 2e6  # of what is waited for: sockets and poll(2) count milliseconds in 31 bits


def require_time_to_load(drain_s: float, swap_s: float) -> None:
    """Raise ValueError where a swap is given up before those in flight have had the time they may take."""
    if swap_s <= drain_s:
        raise ValueError(
            f"swap_timeout_s ({swap_s:g}) is for all of a swap, and drain_timeout_s ({drain_s:g}) alone "
            "takes as long: raise swap_timeout_s, or lower drain_timeout_s"
        )
