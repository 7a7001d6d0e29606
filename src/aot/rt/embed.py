#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT.h NAME=FILE...: writes the bytes of each file as the array rt_NAME."""
import sys

with open(sys.argv[1], "w", encoding="ascii") as out:
    out.write("/* generated */\n")
    for word in sys.argv[2:]:
        name, path = word.split("=", 1)
        with open(path, "rb") as f:
            data = f.read()
        out.write(f"static const unsigned char rt_{name}[] = {{\n")
        for i in range(0, len(data), 16):
            out.write("    " + ", ".join(str(b) for b in data[i:i + 16]) + ",\n")
        out.write("};\n")
