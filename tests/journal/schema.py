# SPDX-License-Identifier: Apache-2.0
"""The schema of the structured log, read from docs/trace-format.md, and lines held against it."""
import json
import os
import re

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "trace-format.md")
PLAN = re.compile(r"^[1-9]\d*\.[1-9]\d*$")
CHECKS = {
    "int": lambda v: type(v) is int and 0 <= v < 1 << 64,
    "bool": lambda v: type(v) is bool,
    "string": lambda v: type(v) is str,
    "site": lambda v: type(v) is str and v != "",
    "plan": lambda v: type(v) is str and PLAN.match(v) is not None,
    "list": lambda v: type(v) is list,
}
COMMON = {"type": ("string", False, True), "t_ns": ("int", False, True), "context": ("int", True, True)}


def read_schema(path=DOCS):
    """{record type: {field: (type, may be null, is required)}}"""
    with open(path, encoding="utf-8") as f:
        text = f.read().split("\n# The structured log\n", 1)[1]
    schema = {}
    for section in text.split("\n### ")[1:]:
        name = re.match(r"`(\w+)`\n", section)[1]
        fields = dict(COMMON)
        for field, kind, null, absent in re.findall(
                r"^\| `(\w+)` \| (\w+)(\??)( \(may be absent\))? \|", section, re.M):
            assert kind in CHECKS, f"{name}.{field}: no such type: {kind}"
            fields[field] = (kind, bool(null), not absent)
        schema[name] = fields
    assert len(schema) > 10, "the tables of the docs were not found"
    return schema


def check_blocks(blocks):
    for b in blocks:
        if set(b) - {"buffers", "regions", "part_of"} != {"kernels", "launches"}:
            return "a block has other fields"
        for buffer in b.get("buffers", []):
            if set(buffer) != {"kind", "index", "dtype", "bytes", "donor", "first", "last"}:
                return "a buffer has other fields"
            if buffer["kind"] == "temporary" and buffer["bytes"] > b["regions"][buffer["index"]]:
                return f"a buffer of {buffer['bytes']} bytes in a smaller region"
        for outer in {r for r in b.get("part_of", ()) if r is not None}:
            parts = sum(n for n, at in zip(b["regions"], b["part_of"]) if at == outer)
            if parts > b["regions"][outer]:
                return f"parts of {parts} bytes in a smaller region"
            if buffer["first"] is not None and not (
                    buffer["first"] <= buffer["last"] < len(b["launches"])):
                return "a buffer that lives outside its launches"
        if any(set(k) != {"kernel", "ops", "site"} for k in b["kernels"]):
            return "a kernel of a block has other fields"
        for launch in b["launches"]:
            for seg in launch:
                if set(seg) != {"kind", "kernel", "records"}:
                    return "a segment has other fields"
                if seg["kernel"] is not None and not seg["kernel"] < len(b["kernels"]):
                    return "a segment names a kernel that there is not"
    return None


def check_line(schema, raw):
    """(record, problem) of one line without its end."""
    if b"<" in raw or any(c < 32 for c in raw):
        return None, "a raw character that must be escaped"
    try:
        record = json.loads(raw.decode("utf-8"))
    except ValueError as e:
        return None, f"no JSON: {e}"
    fields = schema.get(record.get("type"))
    if fields is None:
        return record, f"undocumented type {record.get('type')}"
    for name, (kind, null, required) in fields.items():
        if name not in record:
            if required:
                return record, f"{record['type']} without {name}"
        elif record[name] is None:
            if not null:
                return record, f"{record['type']}.{name} is null"
        elif not CHECKS[kind](record[name]):
            return record, f"{record['type']}.{name} is no {kind}: {str(record[name])[:80]}"
    extra = set(record) - set(fields)
    if extra:
        return record, f"{record['type']} has undocumented fields: {', '.join(sorted(extra))}"
    return record, check_blocks(record["blocks"]) if "blocks" in record else None


def check_file(schema, path, part=0):
    """(records, problems) of one file. Plans may stand in an earlier part."""
    with open(path, "rb") as f:
        raw = f.read()
    problems, records, plans, knows_all = [], [], set(), part == 0
    if not raw.endswith(b"\n"):
        problems.append("the last line has no end")
    for number, line in enumerate(raw.splitlines(), 1):
        record, problem = check_line(schema, line)
        if problem:
            problems.append(f"{os.path.basename(path)}:{number}: {problem}")
            continue
        records.append(record)
        if record["type"] == "process" and record["forked"]:
            knows_all = False  # what was there before stands in the parent's log
        if record["type"] == "plan":
            plans.add(record["plan"])
        elif record["type"] in ("cut", "launch", "sync", "replay", "graph", "miss", "inputs") and record["plan"]:
            if knows_all and record["plan"] not in plans:
                problems.append(f"{number}: {record['type']} names plan {record['plan']} too early")
    first = records[0] if records else {"type": "nothing"}
    if first["type"] != "process" or first["schema"] != 1 or first["part"] != part:
        problems.append(f"{path} does not begin with its process")
    return records, problems
