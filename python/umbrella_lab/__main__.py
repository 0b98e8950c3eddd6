"""``python3 -m umbrella_lab``: a sweep on a cluster, as ``umbrella lab sweep`` hands it over."""

from __future__ import annotations

import argparse
import sys

from ._missing import need
from ._runs import sweep
from ._trace import Trace


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def main() -> int:
    """Runs the sweep; the results are in the folder."""
    parser = argparse.ArgumentParser(prog="python3 -m umbrella_lab", description="A sweep on a Dask cluster.")
    parser.add_argument("--cluster", required=True, metavar="ADDRESS", help="the scheduler, such as tcp://10.0.0.1:8786")
    parser.add_argument("--results", required=True, metavar="FOLDER", help="folder for Parquet files, written as runs finish")
    parser.add_argument("--policy", required=True, action="append", metavar="SPEC")
    parser.add_argument("--sweep", required=True, action="append", type=_pair, metavar="NAME=VALUES")
    parser.add_argument("--set", default=[], action="append", type=_pair, metavar="NAME=VALUE")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--trace", metavar="FILE")
    given.add_argument("--workload", metavar="SPEC")
    asked = parser.parse_args()
    over = {name: [value.strip() for value in values.split(",")] for name, values in asked.sweep}
    try:
        distributed = need("distributed", "cluster")
        input = asked.workload if asked.trace is None else Trace.open(asked.trace)
        with distributed.Client(asked.cluster, timeout="30s") as client:
            options = {"client": client, "results": asked.results, "progress": True}
            done = sweep(asked.policy, input, over, **options, **dict(asked.set))
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        print(f"umbrella: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"umbrella: interrupted; finished runs are in {asked.results}", file=sys.stderr)
        return 130
    print(f"{len(done)} runs: {asked.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
