/* SPDX-License-Identifier: MIT
 *
 * make_fixture.c: writes the model of a fixture's header: make_fixture NAME.head ARCH-KIND OUT.gguf
 */
#include <stdio.h>

#include "tests/model/arch_fixture.h"

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: make_fixture NAME.head ARCH-KIND OUT.gguf\n");
        return 2;
    }
    return arch_fixture_write(argv[1], argv[2], 1, argv[3]) ? 0 : 1;
}
