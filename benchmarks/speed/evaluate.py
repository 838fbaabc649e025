"""python benchmarks/speed/evaluate.py [--json] [--quick] [--threads 2]: see cl_cnaps/benchmarking/evaluate.py."""

from cl_cnaps.benchmarking.script import main

if __name__ == "__main__":
    main("evaluate")
