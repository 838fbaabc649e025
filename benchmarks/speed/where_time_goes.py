"""python benchmarks/speed/where_time_goes.py [--json] [--quick] [--threads 2]: see cl_cnaps/benchmarking/profile.py."""

from cl_cnaps.benchmarking.script import main

if __name__ == "__main__":
    main("profile")
