/* SPDX-License-Identifier: MIT
 *
 * hash.h: FNV-1a with 64 bits (Fowler, Noll, Vo): to compare contents, and for tables. It is not
 * cryptographic: different contents with the same hash can be made on purpose.
 */
#ifndef TANDEM_BASE_HASH_H
#define TANDEM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash of no bytes. */
#define TDM_HASH_BEGIN UINT64_C(0xcbf29ce484222325)

/* Continues `hash`, that of all bytes before, with the bytes of `data`. [any-thread] */
static inline uint64_t tdm_hash_add(uint64_t hash, const void *data, size_t size) {
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
