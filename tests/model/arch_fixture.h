/* SPDX-License-Identifier: MIT
 *
 * arch_fixture.h: tiny models of many architectures: a header (NAME.head, a compressed GGUF without
 * its data) and weights that depend on a tensor's name, its shape and a seed alone. With these
 * weights every architecture's attention, positions and norms show in the logits.
 */
#ifndef TANDEM_TESTS_MODEL_ARCH_FIXTURE_H
#define TANDEM_TESTS_MODEL_ARCH_FIXTURE_H

#include <stdbool.h>

/* Writes the model of `head` to `path`; false if the header cannot be read. `name` is "ARCH-KIND",
 * of which the scale of embeddings depends on ARCH. */
bool arch_fixture_write(const char *head, const char *name, int seed, const char *path);

#endif
