/* SPDX-License-Identifier: Apache-2.0
 *
 * The core of recording, for the other rooms of this module. It depends on none of them.
 *
 *   context.h      the structures of a runtime and of a context
 *   value.h        values: computed or wrapped tensors
 *   handle.h       handles: the objects behind deft_tensor pointers
 *   record.h       appending records
 *   cut.h          from records to a trace
 *   errors.h       mistakes of the program
 *   site.h         call sites, lines and labels
 *   budget.h       how much may be pending
 *
 * Files that need them include these as well:
 *
 *   history.h      records of earlier epochs, cached cuts
 *   append.h       the inner steps of appending
 *   meet.h         bare numbers among operands
 *   annotations.h  what gradients know of records
 *   recorder.h     what captures are told
 *   flight.h       submitted steps
 *   devices.h      values on other devices
 */
#ifndef DF_LAZY_LAZY_H
#define DF_LAZY_LAZY_H

#include "lazy/core/budget.h"
#include "lazy/core/cut.h"
#include "lazy/core/errors.h"
#include "lazy/core/handle.h"
#include "lazy/core/record.h"
#include "lazy/core/site.h"

#endif
