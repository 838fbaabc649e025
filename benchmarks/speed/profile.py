"""python benchmarks/speed/profile.py [--json] [--quick] [--threads 2]: see cl_cnaps/benchmarking/profile.py."""

from cl_cnaps.benchmarking.script import main

if __name__ == "__main__":
    main("profile")
