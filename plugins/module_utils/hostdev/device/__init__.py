"""What all three places know: addresses, functions, groups, selectors, names and faults. No I/O, standard library only."""
