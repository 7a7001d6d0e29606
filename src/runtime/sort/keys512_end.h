/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of what keys_avx512.c defines for keys512_body.h.
 */
#undef BROADCAST
#undef COMPARABLES_OF_KEYS
#undef COMPRESS
#undef EIGHT
#undef EIGHT_BROADCAST
#undef EIGHT_KEY
#undef EIGHT_LESS
#undef EIGHT_LOAD
#undef EIGHT_LOSES
#undef EIGHT_ORDER
#undef EIGHT_STORE
#undef GREATEST
#undef KEY
#undef KEYS_OF_COMPARABLES
#undef LANES
#undef LANE_NUMBERS
#undef LESS
#undef LESS_ONE
#undef LOAD_MASKED
#undef MASK
#undef MASK_MAX
#undef MAX
#undef MIN
#undef NAME
#undef PERMUTE
#undef STORE_ALL
#undef STORE_MASKED
#undef STORE_SOME
#undef TEST
