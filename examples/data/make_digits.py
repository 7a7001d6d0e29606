#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes digits.bin from the copy of the data set that scikit-learn's wheel carries.

    make_digits.py            downloads the wheel with pip, writes digits.bin beside this script
    make_digits.py WHEEL      the same from a wheel already here
    make_digits.py --check    makes it again in memory and compares with digits.bin

The wheel is only opened as an archive; nothing in it is imported. Any wheel of any platform will do: what is
pinned is the checksum of the one file taken from it.

digits.bin: "DIGITS01", u32 images, u32 images for training, 64 bytes of pixels (0..16, row by row) per
image, then one byte of label per image; little endian. The order is a fixed shuffle.
"""
import csv
import gzip
import hashlib
import io
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

VERSION = "1.5.2"
MEMBER = "sklearn/datasets/data/digits.csv.gz"
SHA256_MEMBER = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
SEED = 1998
N_IMAGES, N_TRAIN = 1797, 1437
OUT = pathlib.Path(__file__).resolve().parent / "digits.bin"


def fetch(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                    "--only-binary=:all:", "--python-version", "3.11",
                    "--platform", "manylinux2014_x86_64", "--dest", folder,
                    f"scikit-learn=={VERSION}"], check=True)
    (wheel,) = pathlib.Path(folder).glob("scikit_learn-*.whl")
    return wheel


def rows_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.read(MEMBER)
    found = hashlib.sha256(packed).hexdigest()
    if found != SHA256_MEMBER:
        sys.exit(f"{MEMBER} has checksum {found}, expected {SHA256_MEMBER}")
    text = gzip.decompress(packed).decode("ascii")
    rows = [[int(x) for x in row] for row in csv.reader(io.StringIO(text))]
    assert len(rows) == N_IMAGES and all(len(r) == 65 for r in rows)
    assert all(0 <= p <= 16 for r in rows for p in r[:64]) and {r[64] for r in rows} == set(range(10))
    return rows


def splitmix64(state):
    """Steele, Lea, Flood 2014. Not `random`, whose shuffle may change between versions of Python."""
    mask = (1 << 64) - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def shuffle(rows):
    bits = splitmix64(SEED)
    for i in range(len(rows) - 1, 0, -1):
        j = next(bits) % (i + 1)
        rows[i], rows[j] = rows[j], rows[i]


def encode(rows):
    shuffle(rows)
    return (b"DIGITS01" + struct.pack("<II", N_IMAGES, N_TRAIN)
            + b"".join(bytes(r[:64]) for r in rows) + bytes(r[64] for r in rows))


def main():
    args = sys.argv[1:]
    check = "--check" in args
    wheels = [a for a in args if a != "--check"]
    with tempfile.TemporaryDirectory() as folder:
        data = encode(rows_of(wheels[0] if wheels else fetch(folder)))
    digest = hashlib.sha256(data).hexdigest()
    if check:
        same = OUT.read_bytes() == data
        print(f"{OUT.name}: {'equal' if same else 'DIFFERENT'}, sha256 {digest}")
        sys.exit(0 if same else 1)
    OUT.write_bytes(data)
    print(f"{OUT.name}: {len(data)} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
