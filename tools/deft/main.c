/* SPDX-License-Identifier: Apache-2.0
 *
 * deft: the command line. docs/cli.md describes it.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "deft/deft.h"

/* In two pieces, because C promises no longer strings. */
static const char usage_programs[] =
    "usage: deft COMMAND [...]\n"
    "\n"
    "  opt FILE      run a trace through the passes and print stages\n"
    "    --passes=LIST    cse, fold, algebra, dce, all, none, fuse     (all,fuse)\n"
    "    --show=LIST      trace, key, guards, plan, why, ir, asm       (trace)\n"
    "    --target=NAME    x86-64[-v2|-v3|-v4], aarch64[-sve256|-sve512]: for ir and asm\n"
    "    --fast           numerics without the promise of bits\n"
    "    --nofuse         one kernel per op\n"
    "    --threads=N      what the fuser is told                       (8)\n"
    "    --max-body=N     most instructions in one kernel              (1000)\n"
    "  run FILE      run a trace and print the results\n"
    "    --check          compare with the unfused interpreter, bit for bit\n"
    "    --expect=FILE    compare with stored results\n"
    "    --ulp=N          by which floats may be off those             (0)\n"
    "    --bench          time of one run, traffic, launches\n"
    "    --tier=T         interp, 0, 1; with these also all            (interp)\n"
    "    --threads=N      0: all that the process may use              (0)\n"
    "    --inputs=FILE    safetensors: in0, in1, ...; others are made  (all made)\n"
    "    --seed=N         of inputs that are made                      (1)\n"
    "    --save-inputs=FILE, --save-outputs=FILE\n"
    "                     store what was used, and what came out\n"
    "    --passes --fast --nofuse as above\n"
    "  aot FILE -o OUT   an object and a header, for programs without libdeft: OUT.o, OUT.h\n"
    "    --c              a C file instead of an object: OUT.c\n"
    "    --shared         a shared library instead of an object: OUT.so\n"
    "    --cuda           a C file with code for NVIDIA GPUs instead of an object: OUT.c\n"
    "    --architectures=LIST  of these GPUs: 80 is compute capability 8.0  (80,86,89,90,100)\n"
    "    --multiprocessors=N   of the GPU that grids are chosen for         (132)\n"
    "    --name=NAME      of the function                              (from OUT)\n"
    "    --parameters=LIST  names of inputs, then of outputs           (in0, ..., out0, ...)\n"
    "    --open=N=inI.A,...  axis A of input I has the extent N, which is a parameter\n"
    "    --number=NAME=%K    the number of node K is a parameter\n"
    "    --link=NAME=FILE[:TENSOR]  this input is a tensor of a file, and part of OUT\n"
    "    --levels=LIST    processors: x86-64[-v2|-v3|-v4]  (x86-64-v4,x86-64-v3,x86-64)\n"
    "    --fast as above\n"
    "  dot FILE      Graphviz text of a trace and its kernels\n"
    "    --fold           one node per kernel\n"
    "    --passes=LIST as above\n"
    "  diff A B      what differs first in two traces, and what it did to guards and kernels\n"
    "  minimize FILE [-- OPTIONS OF run]\n"
    "                shrink a failing trace while it still fails\n"
    "    --out=FILE       where to                                     (standard output)\n"
    "    --with=COMMAND   fails while `COMMAND TRACE` does; else: while run --check does\n"
    "    --timeout=N      seconds for one candidate                    (60)\n"
    "    --memory=N       MiB of address space for one candidate       (no bound)\n"
    "    --tries=N        candidates at most                           (5000)\n";

static const char usage_logs[] =
    "  stats LOG     what a structured log adds up to; LOG is a folder or one of its files\n"
    "    --json           as one object\n"
    "  perfetto LOG  the log as a trace for ui.perfetto.dev\n"
    "    --out=FILE, -o FILE                                           (standard output)\n"
    "  bundle FOLDER one file to report a bug with: logs, traces, stored inputs\n"
    "    --out=FILE, -o FILE                                           (deft-bundle.tar.gz)\n"
    "  report LOG    one HTML page about it: lines, kernels, code, graphs, memory, recompiles\n"
    "    --out=FILE, -o FILE                                           (report.html)\n"
    "    --compare=LOG    puts an earlier run beside this one\n"
    "    --source=DIR     where source files are looked for            (.)\n"
    "    --limits=A,B     GB/s and GFLOP/s of the machine              (measured)\n"
    "    --events=N       newest events of each kind that are kept     (1000)\n"
    "  cache stat|verify|clear\n"
    "                what is in the folders of compiled code; whether entries are as they\n"
    "                were written; removes those of the first folder\n"
    "  cache pack|unpack FILE\n"
    "                writes the entries of all folders to one file; writes those of such a\n"
    "                file to the first folder\n"
    "    --dir=FOLDERS    as DEFT_CACHE_DIR                            (that variable)\n"
    "  opcheck LIBRARY  checks operators of a shared library (deft/check.h)\n"
    "    --seed=N         of all numbers that are drawn                (0)\n"
    "    --directions=N   in which each input is moved                 (2)\n"
    "    --no-second      without gradients of gradients\n"
    "  doctor        what was found on this machine\n"
    "  ops           the table of ops\n"
    "    --json           every op with all its rules, as JSON\n"
    "  api --json    every function, struct and enum of the public headers, as JSON\n"
    "  --version, --help\n"
    "\n"
    "FILE is a text trace, - for standard input; what follows a line \"--- ...\" is not read.\n"
    "Exit: 0 ok, 1 a check failed, 2 usage, 3 bad input, 4 no code generator or library.\n";

static void put_usage(FILE *out)
{
    fputs(usage_programs, out);
    fputs(usage_logs, out);
}

static int help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    put_usage(stdout);
    return CLI_OK;
}

static int version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("deft %s\n", deft_version());
    return CLI_OK;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = { { "opt", cli_opt },
                     { "run", cli_run },
                     { "aot", cli_aot },
                     { "dot", cli_dot },
                     { "diff", cli_diff },
                     { "minimize", cli_minimize },
                     { "stats", cli_stats },
                     { "perfetto", cli_perfetto },
                     { "bundle", cli_bundle },
                     { "report", cli_report },
                     { "cache", cli_cache },
                     { "doctor", cli_doctor },
                     { "ops", cli_ops },
                     { "api", cli_api },
                     { "opcheck", cli_opcheck },
                     { "--version", version },
                     { "--help", help },
                     { "help", help },
                     { "-h", help } };
    if (argc < 2) {
        put_usage(stderr);
        return CLI_USAGE;
    }
    for (size_t i = 0; i < DF_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        const int code = commands[i].run(argc - 1, argv + 1);
        /* Output that was lost must not look like success. */
        if (fflush(stdout) != 0) return cli_fail(CLI_INPUT, "could not write the output");
        return code;
    }
    return cli_fail(CLI_USAGE, "unknown command %s; deft --help lists all", argv[1]);
}
