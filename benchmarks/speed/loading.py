"""python benchmarks/speed/loading.py [--json] [--quick] [--threads 2]: see cl_cnaps/benchmarking/loading.py."""

from cl_cnaps.benchmarking.script import main

if __name__ == "__main__":
    main("loading")
