# SPDX-License-Identifier: Apache-2.0
"""The names of the rows of bench/table_order.c, which are made of a workload, a dtype and an order of the elements."""

WORKLOADS = {"topk": ["topk_10", "topk_1000", "topk"], "searchsorted": ["searchsorted_1000", "searchsorted_all"]}


def order_rows(workload):
    """All names that a row of the workload may have; the table has some of them."""
    return [f"order/{name}_{dtype}{order}" for name in WORKLOADS.get(workload, [workload])
            for dtype in ("f32", "f64", "i32", "i64") for order in ("", "_up", "_down", "_few", "_rows")]
