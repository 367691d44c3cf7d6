/* SPDX-License-Identifier: MIT
 *
 * preset.h: random models by name. A test changes and writes them.
 */
#ifndef TANDEM_TESTS_MODEL_PRESET_H
#define TANDEM_TESTS_MODEL_PRESET_H

#include <string.h>
#include <unistd.h>

#include "bench/random_model.h"
#include "tests/model/rig.h"

/* The preset of that name; if there is none, one of zeros, which cannot be written. */
static inline random_model_spec preset_find(const char *wanted) {
    static const random_model_spec none = {0};
    const random_model_spec *spec;
    const char *name;
    for (int i = 0; (spec = random_model_preset_at(i, &name)) != NULL; i++)
        if (strcmp(name, wanted) == 0) return *spec;
    return none;
}

/* The file of that name in the test's folder, with the model of that spec. It is written at the
 * first call. */
static inline const char *preset_file(const char *name, const random_model_spec *spec) {
    tdm_error err = {0};
    const char *path = rig_file(name);
    if (access(path, R_OK) != 0) RIG_OK(random_model_write(spec, path, NULL, NULL, NULL, &err));
    return path;
}

#endif
