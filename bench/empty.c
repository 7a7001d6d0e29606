/* SPDX-License-Identifier: Apache-2.0
 *
 * The program that does nothing: what a process start costs by itself.
 */
int main(void)
{
    return 0;
}
