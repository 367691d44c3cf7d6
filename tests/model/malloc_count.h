/* SPDX-License-Identifier: MIT
 *
 * malloc_count.h: counts the allocations of core and language layer. Programs that use it are
 * linked with --wrap for malloc, calloc and realloc, so that every call arrives here.
 */
#ifndef TANDEM_TESTS_MALLOC_COUNT_H
#define TANDEM_TESTS_MALLOC_COUNT_H

/* Calls so far. [any-thread] */
unsigned long malloc_count_get(void);

#endif
