/* SPDX-License-Identifier: MIT
 *
 * arch.c: the table of architectures.
 */
#include "llm/arch/families.h"

#include <string.h>

#define ROW(name) &llm_arch_##name,
static const llm_arch *const arches[] = {LLM_ARCH_LIST(ROW)};

bool llm_arch_is_harmless(const llm_arch *arch, const char *tensor) {
    char suffix[80];
    if (arch->harmless == NULL) return false;
    if (strncmp(tensor, "enc.blk.", 8) == 0 || strncmp(tensor, "dec.blk.", 8) == 0)
        tensor += 4; /* of T5 */
    (void)llm_tensor_layer(tensor, &tensor);
    int n = snprintf(suffix, sizeof suffix, " %s ", tensor);
    return n > 0 && (size_t)n < sizeof suffix && strstr(arch->harmless, suffix) != NULL;
}

tdm_status llm_arch_find(const char *name, const llm_arch **arch_out, tdm_error *err) {
    char known[160] = "";
    const size_t n_arch = sizeof arches / sizeof arches[0];
    size_t used = 0, n_named = 0;
    for (size_t i = 0; i < n_arch; i++) {
        if (strcmp(arches[i]->name, name) != 0) continue;
        *arch_out = arches[i];
        return TDM_OK;
    }
    /* As many as fit. */
    while (n_named < n_arch && used + strlen(arches[n_named]->name) + 3 < sizeof known) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s, ", arches[n_named]->name);
        n_named++;
    }
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "architecture '%s' is not supported; supported: %sand %zu more, which "
                    "docs/models.md lists",
                    name, known, n_arch - n_named);
}
