/* SPDX-License-Identifier: Apache-2.0
 *
 * Export: a captured function becomes an object file, a shared library or a C file, with a header.
 * A program that uses it needs neither libdeft nor LLVM. docs/export.md shows it, and says what
 * cannot be exported; `deft aot` does the same for text traces.
 *
 *   deft_capture_call(step, in, 2, out, 1);
 *   deft_export(step, "build/heat", NULL);      writes build/heat.h and build/heat.o
 *
 * The exported function has the bits of strict mode on every processor.
 */
#ifndef DEFT_EXPORT_H
#define DEFT_EXPORT_H

#include "deft/capture.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An axis of an input whose extent becomes a parameter. Axes with one name have one extent. */
typedef struct deft_export_extent {
    const char *name; /**< Of the parameter. */
    size_t input;     /**< The index in the list `in` of the call. */
    size_t axis;      /**< Of that input. */
} deft_export_extent;

/** How a function is exported. Zeros are the defaults. */
typedef struct deft_export_options {
    size_t size;      /**< sizeof(deft_export_options) */
    const char *name; /**< Of the function, a C identifier. NULL: the last part of the path. */
    /** The processors for which an object has code: some of "x86-64", "x86-64-v2", "x86-64-v3",
     * "x86-64-v4", with ',' between them. NULL: "x86-64-v4,x86-64-v3,x86-64". */
    const char *levels;
    bool as_c; /**< Writes PATH.c instead of PATH.o. */
    /** Tensors from outside are parameters. Otherwise the file contains their values, unless the
     * function assigns to them. */
    bool passes_outside;
    const char *const *inputs;  /**< Per input of the call, its name or NULL; NULL: in0, in1, ... */
    const char *const *outputs; /**< The same for outputs; NULL: out0, out1, ... */
    const deft_export_extent *extents; /**< Axes whose extents are parameters; may be NULL. */
    size_t n_extents;                  /**< How many there are. */
    /** Writes PATH.trace alone: a text trace for deft_program_load (program.h). Its inputs are
     * those of the call that the function uses, then tensors from outside. */
    bool as_trace;
    /** Writes PATH.so instead of PATH.o, and a function in PATH.h that opens it. */
    bool as_shared;
    /** Writes PATH.c for NVIDIA GPUs instead of PATH.o, and a header that goes with it. It calls
     * the Driver API, and needs no other library. Extents cannot be parameters. Needs NVRTC. */
    bool as_cuda;
    /** With as_cuda: the compute capabilities that get code, with ',' between them, as "80,90" for
     * 8.0 and 9.0. Later GPUs compile the PTX for the least of them. NULL: "80,86,89,90,100", as
     * far as NVRTC knows them. */
    const char *architectures;
    /** With as_cuda: the multiprocessors of the GPU that grids are chosen for. Results do not
     * depend on it. 0: 132. */
    int multiprocessors;
} deft_export_options;

/** Exports the recording of c that was used last. Writes PATH.h, and PATH.o, PATH.so or PATH.c. An
 * acting call (eval.h). o may be NULL.
 *
 * Where an extent is open, the function of c runs again with inputs of other extents, and what it
 * records is compared. For what C code computes from an extent cannot follow the parameter. These
 * runs compute nothing, and nothing that the function assigns, draws or counts stays. No step may
 * be open then.
 *
 * The parameters of the function are, in this order:
 *   - extents;
 *   - inputs of the call;
 *   - tensors from outside that are passed: outside0, ...;
 *   - parameters of the capture, by their names;
 *   - generators of random numbers, each with its seed and the number of its first draw: seed0,
 *     draw0, ...; the header of the export says how many draws a call takes;
 *   - outputs;
 *   - new values of assigned tensors, NAME_new, each of which may be the array with the old value;
 *   - workspace and threads. With as_cuda they are module, stream, those above, and workspace.
 *
 * DEFT_E_STATE: c has no recording that can be replayed. DEFT_E_ARG: the function cannot be
 * exported, or an option has no meaning; the sentence says which. With an open extent, a function
 * that records something else, or fails, with other extents cannot be exported. DEFT_E_BACKEND: the
 * plug-in, the code generator or NVRTC is missing. DEFT_E_IO: a file could not be written. No file
 * is left half written. DEFT_E_MEMORY is possible. */
DEFT_API DEFT_MUST_CHECK deft_status deft_export(deft_capture *c, const char *path,
                                                 const deft_export_options *o);

/** Options by their names: deft_export(c, "heat", DEFT_EXPORT(.as_c = true)). */
#define DEFT_EXPORT(...)                                                                           \
    (&(const deft_export_options){ .size = sizeof(deft_export_options), __VA_ARGS__ })

#ifdef __cplusplus
}
#endif
#endif
