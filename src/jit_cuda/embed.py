#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py FILE OUT.h: the prelude as an array of bytes that ends with 0, without its comments."""
import re
import sys

with open(sys.argv[1], encoding="ascii") as f:
    text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
lines = [line.rstrip() for line in text.split("\n") if line.strip()]
data = ("\n".join(lines) + "\n").encode() + b"\0"
with open(sys.argv[2], "w", encoding="ascii") as f:
    f.write("/* generated from prelude.cu */\nstatic const unsigned char prelude_text[] = {\n")
    for i in range(0, len(data), 16):
        f.write("    " + ", ".join(str(b) for b in data[i:i + 16]) + ",\n")
    f.write("};\n")
