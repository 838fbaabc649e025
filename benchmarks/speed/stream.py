"""python benchmarks/speed/stream.py [--json] [--quick] [--threads 2]: see cl_cnaps/benchmarking/stream.py."""

from cl_cnaps.benchmarking.script import main

if __name__ == "__main__":
    main("stream")
