/* SPDX-License-Identifier: MIT
 *
 * preset.h: random models by name, to be changed and written by a test.
 */
#ifndef TANDEM_TESTS_MODEL_PRESET_H
#define TANDEM_TESTS_MODEL_PRESET_H

#include <string.h>

#include "bench/random_model.h"

/* The preset called so; one of nothing but zeros, which cannot be written, where there is none. */
static inline random_model_spec preset_find(const char *wanted) {
    static const random_model_spec none = {0};
    const random_model_spec *spec;
    const char *name;
    for (int i = 0; (spec = random_model_preset_at(i, &name)) != NULL; i++)
        if (strcmp(name, wanted) == 0) return *spec;
    return none;
}

#endif
