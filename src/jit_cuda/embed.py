#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py NAME.cu OUT.h [FIRST...]: a text as an array of bytes, NAME_text, that ends with 0, without its comments;
FIRST: files that it begins with."""
import os
import re
import sys

name = os.path.splitext(os.path.basename(sys.argv[1]))[0]
text = ""
for path in sys.argv[3:] + sys.argv[1:2]:
    with open(path, encoding="ascii") as f:
        text += re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
lines = [line.rstrip() for line in text.split("\n") if line.strip()]
data = ("\n".join(lines) + "\n").encode() + b"\0"
with open(sys.argv[2], "w", encoding="ascii") as f:
    f.write(f"/* generated from {name}.cu */\nstatic const unsigned char {name}_text[] = {{\n")
    for i in range(0, len(data), 16):
        f.write("    " + ", ".join(str(b) for b in data[i:i + 16]) + ",\n")
    f.write("};\n")
