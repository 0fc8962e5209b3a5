"""What the benchmarks have in common: commands, and the record of a run."""
