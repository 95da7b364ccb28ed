"""The longest times that settings may name, and what they have to leave of each other. Import-light."""

LONGEST_S = 1e9  # thirty years; times in ms and what is added to them have to fit 64 bits
WAIT_S = 2e6  # of what is waited for: sockets and poll(2) count milliseconds in 31 bits


def require_time_to_load(swap_s: float, **within_s: float) -> None:
    """Raise ValueError where a swap is given up before what it is for has had the time that it may take:
    `within_s` by the names of the settings."""
    if swap_s <= sum(within_s.values()):
        parts = " and ".join(f"{name} ({value:g})" for name, value in within_s.items())
        raise ValueError(
            f"swap_timeout_s ({swap_s:g}) is for all of a swap, and no longer than {parts}: raise "
            "swap_timeout_s, or lower these"
        )
