/* SPDX-License-Identifier: Apache-2.0
 *
 * The module deft._deft.
 */
#include "ext.h"

static int setup(PyObject *module)
{
    return context_setup(module) && array_setup(module) && function_setup(module) &&
                   record_setup(module) && PyModule_AddFunctions(module, data_functions) == 0 &&
                   PyModule_AddFunctions(module, exchange_functions) == 0 &&
                   PyModule_AddStringConstant(module, "version", deft_version()) == 0 &&
                   PyModule_AddIntConstant(module, "FLAT", DEFT_FLAT) == 0
               ? 0
               : -1;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, setup }, { 0, NULL } };

static struct PyModuleDef definition = { .m_base = PyModuleDef_HEAD_INIT,
                                         .m_name = "_deft",
                                         .m_doc = "The compiled part of deft.",
                                         .m_slots = slots };

PyMODINIT_FUNC PyInit__deft(void);
PyMODINIT_FUNC PyInit__deft(void)
{
    return PyModuleDef_Init(&definition);
}
