/* SPDX-License-Identifier: Apache-2.0
 *
 * For switches over dtypes: the labels of those that no record has (lazy/core/face.h).
 */
#ifndef TESTS_FACES_H
#define TESTS_FACES_H

#define CASES_OF_FACES                                                                             \
    case DEFT_C64:                                                                                 \
    case DEFT_C128: CASES_OF_CODES

/* Those of storage dtypes. */
#define CASES_OF_CODES                                                                             \
    case DEFT_F8E4M3FN:                                                                            \
    case DEFT_F8E5M2:                                                                              \
    case DEFT_E8M0:                                                                                \
    case DEFT_U4:                                                                                  \
    case DEFT_I4

#endif
