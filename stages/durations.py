"""The longest times that settings may name. Import-light."""

LONGEST_S = 1e9  # thirty years; times in ms and what is added to them have to fit 64 bits
WAIT_S = 2e6  # of what is waited for: sockets and poll(2) count milliseconds in 31 bits
