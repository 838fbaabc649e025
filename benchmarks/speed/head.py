"""python benchmarks/speed/head.py [--json] [--quick] [--threads 2]: see cl_cnaps/benchmarking/head.py."""

from cl_cnaps.benchmarking.script import main

if __name__ == "__main__":
    main("head")
