/* SPDX-License-Identifier: MIT
 *
 * malloc_count.h: how often core and language layer have asked for memory. Programs that use it are
 * linked with --wrap for malloc, calloc and realloc, so that every call passes by here.
 */
#ifndef TANDEM_TESTS_MALLOC_COUNT_H
#define TANDEM_TESTS_MALLOC_COUNT_H

/* Calls so far. [any-thread] */
unsigned long malloc_count_get(void);

#endif
