/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that calls back, in line 12.
 */
__attribute__((visibility("default"))) int victim_calls(int (*f)(void));

#ifdef MOVED
#line 107
#endif
int victim_calls(int (*f)(void))
{
    return f() + 1;
}
