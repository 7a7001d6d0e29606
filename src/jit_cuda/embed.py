#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py NAME.EXT OUT.h [FIRST...]: writes a text without its comments as an array of bytes, NAME_text, that ends with 0.

The files FIRST come before the text, except for three tables. dtypes.def fills in the lines @lists@ and @casts@ of the text. The
text must have a function for each kernel op of kops.def that computes, and for each kernel of the list in routine.h. The build
fails with the name of a function that is missing.
"""
import os
import re
import sys


def read(path):
    with open(path, encoding="ascii") as f:
        return re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)


def dtypes(path):
    """(kind, bits, type in CUDA) of each row."""
    rows = re.findall(r"^DTYPE\((.*)\)", read(path), re.M)
    cells = [[c.strip() for c in row.split(",")] for row in rows]
    return [(c[2], int(c[3]), c[6]) for c in cells]


def lists(rows):
    for name, kind in (("NATURALS", "natural"), ("INTEGERS", "integer"), ("REALS", "real")):
        yield f"#define {name}(X) " + " ".join(f"X({t}, {bits})" for k, bits, t in rows if k == kind)


def check_ops(path, text):
    for op, kind in re.findall(r"^KOP\((\w+),\s*\d, (\w+)", read(path), re.M):
        if kind not in ("map", "reduce") or op in ("select", "check"):
            continue  # select is an operator of C++, check_index is no element's
        if not re.search(rf"\b{op}_(##|[fiub]\d)|\(({op})[,)_]", text):
            sys.exit(f"prelude: no {op} of ops/kops.def")


def check_routines(path, text):
    for kernel in re.findall(r"^    X\((\w+), \w+\)", read(path), re.M):
        if not re.search(rf"\bDEV void {kernel}\(", text):
            sys.exit(f"routine.cu: no kernel {kernel} of kernels/routine.h")


def casts(rows):
    """A cast between each two dtypes. Halves are cast from f32 and to it alone, by hand."""
    rows = [r for r in rows if r[0] != "half"]
    for kind, _, source in rows:
        for to, bits, t in rows:
            if to == "boolean":
                yield f"CAST_BOOL({source}, {t})"
            elif kind == "real" and to in ("natural", "integer"):
                yield f"CAST_{to.upper()}({source}, {t}, {bits})"
            else:
                yield f"CAST_VALUE({source}, {t})"


name = os.path.splitext(os.path.basename(sys.argv[1]))[0]
text = ""
table = []
ops = routines = None
for path in sys.argv[3:] + sys.argv[1:2]:
    if os.path.basename(path) == "dtypes.def":
        table = dtypes(path)
    elif os.path.basename(path) == "kops.def":
        ops = path
    elif os.path.basename(path) == "routine.h":
        routines = path
    else:
        text += read(path)
if ops:
    check_ops(ops, text)
if routines:
    check_routines(routines, text)
if table:
    text = text.replace("@lists@", "\n".join(lists(table))).replace("@casts@", "\n".join(casts(table)))
lines = [line.rstrip() for line in text.split("\n") if line.strip()]
data = ("\n".join(lines) + "\n").encode() + b"\0"
with open(sys.argv[2], "w", encoding="ascii") as f:
    f.write(f"/* generated from {os.path.basename(sys.argv[1])} */\nstatic const unsigned char {name}_text[] = {{\n")
    for i in range(0, len(data), 16):
        f.write("    " + ", ".join(str(b) for b in data[i:i + 16]) + ",\n")
    f.write("};\n")
