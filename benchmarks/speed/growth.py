"""python benchmarks/speed/growth.py [--json] [--quick] [--threads 2]: see cl_cnaps/benchmarking/growth.py."""

from cl_cnaps.benchmarking.script import main

if __name__ == "__main__":
    main("growth")
