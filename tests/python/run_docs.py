# SPDX-License-Identifier: Apache-2.0
"""run_docs.py SOURCE_DIR: the programs of docs/python.md print what the document shows.

A ```python block is a program, and the ```text block after it is what it prints."""
import re
import subprocess
import sys
from pathlib import Path

root = Path(sys.argv[1])
text = (root / "docs" / "python.md").read_text(encoding="utf-8")
blocks = re.findall(r"^```(python|text)\n(.*?)^```$", text, re.M | re.S)
programs = [(code, blocks[i + 1][1]) for i, (kind, code) in enumerate(blocks)
            if kind == "python" and i + 1 < len(blocks) and blocks[i + 1][0] == "text"]
if len(programs) != sum(kind == "python" for kind, _ in blocks) or len(programs) < 5:
    sys.exit(f"{len(programs)} programs of docs/python.md have an output")
n_failed = 0
for code, expected in programs:
    done = subprocess.run([sys.executable, "-"], input=code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
                          check=False)
    if done.stdout != expected:
        print(f"--- program\n{code}--- prints\n{done.stdout}{done.stderr}--- the document shows\n{expected}")
        n_failed += 1
print(f"{len(programs)} programs, {n_failed} failed")
sys.exit(n_failed != 0)
