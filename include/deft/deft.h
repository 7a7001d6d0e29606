/* SPDX-License-Identifier: Apache-2.0
 *
 * deft: deferred tensors for C. This header includes all others.
 *
 * Calls only record operations. Nothing runs until a value is read or a step ends. Then the
 * recorded trace is looked up in a cache, fused, compiled and run. Begin with docs/tour.md.
 */
#ifndef DEFT_DEFT_H
#define DEFT_DEFT_H

#include "deft/array.h"
#include "deft/arrow.h"
#include "deft/capture.h"
#include "deft/check.h"
#include "deft/complex.h"
#include "deft/context.h"
#include "deft/control.h"
#include "deft/device.h"
#include "deft/dlpack.h"
#include "deft/dtype.h"
#include "deft/eval.h"
#include "deft/export.h"
#include "deft/extend.h"
#include "deft/formula.h"
#include "deft/files.h"
#include "deft/grad.h"
#include "deft/images.h"
#include "deft/layers.h"
#include "deft/losses.h"
#include "deft/nn.h"
#include "deft/opaque.h"
#include "deft/ops.h"
#include "deft/program.h"
#include "deft/random.h"
#include "deft/status.h"
#include "deft/tensor.h"
#include "deft/typed.h"
#include "deft/vmap.h"

#endif
