/* SPDX-License-Identifier: Apache-2.0
 *
 * The core of recording, for the other folders of src/lazy. It depends on none of them.
 *
 *   context.h      the structures of a runtime and of a context
 *   value.h        values: tensors that are computed, or that wrap memory of the caller
 *   handle.h       handles: the objects behind deft_tensor pointers
 *   record.h       appending records
 *   face.h         dtypes that only handles have
 *   cut.h          from records to a trace
 *   errors.h       mistakes of the program
 *   site.h         call sites, lines and labels
 *   budget.h       how much may be pending before a call computes it
 *
 * Files that need them include these as well:
 *
 *   history.h      the records of earlier epochs, and cuts that are used again. An epoch
 *                  ends when all records are removed
 *   append.h       the inner steps of appending a record
 *   meet.h         gives a bare number (deft_num) the dtype of the other operands
 *   annotations.h  what records mean for gradients: stops, hooks, custom rules
 *   recorder.h     reports to a capture what its function records
 *   flight.h       the submitted step, which runs on a thread of its own
 *   devices.h      values on other devices
 */
#ifndef DF_LAZY_LAZY_H
#define DF_LAZY_LAZY_H

#include "lazy/core/budget.h"
#include "lazy/core/cut.h"
#include "lazy/core/errors.h"
#include "lazy/core/face.h"
#include "lazy/core/handle.h"
#include "lazy/core/record.h"
#include "lazy/core/site.h"

#endif
