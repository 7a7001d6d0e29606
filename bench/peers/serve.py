# SPDX-License-Identifier: Apache-2.0
"""The frame of a script that answers lines for `deft-bench`: it starts itself again in the environment of its library."""
import argparse
import fcntl
import os
import pathlib
import sys

import peers


def python_of(args, environment):
    """The Python that has the library. Scripts without the option --install always install it."""
    if args.environment:
        return args.environment / "bin" / "python"
    if not getattr(args, "install", True) and not (args.venv / environment / "installed.txt").exists():
        raise RuntimeError("it is not installed, and --install was not given")
    os.makedirs(args.venv, exist_ok=True)
    with open(args.venv / f"{environment}.lock", "w") as lock:    # Two peers may be of one environment.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return peers.prepare(args.venv, environment)


def main(text, names, environment_of, start, add_options=lambda parser: None, stays=lambda args: False):
    """start(args, say) answers lines by say("ok" or "failed", text). environment_of(args) names the requirements.
    stays(args): the Python at hand has the library."""
    parser = argparse.ArgumentParser(description=text.split("\n")[0])
    parser.add_argument("--venv", type=pathlib.Path, help="folder for the environments")
    parser.add_argument("--environment", type=pathlib.Path, help="an environment that has the library already")
    parser.add_argument("--peer", choices=sorted(names), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    add_options(parser)
    args = parser.parse_args()
    # Whatever the libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(word, text):
        print(word, " ".join(text.split()), file=answers, flush=True)

    try:
        if args.inside or stays(args):
            # Affinity is what JAX takes its thread count from.
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.threads])
            start(args, say)
            return
        python = python_of(args, environment_of(args))
        folder = args.venv or args.environment
        os.dup2(answers.fileno(), 1)
        os.execve(python, [python, sys.argv[0], "--inside", *sys.argv[1:]], peers.environment(folder, args.threads))
    except Exception as error:
        say("failed", f"{type(error).__name__}: {error}")
        sys.exit(1)
