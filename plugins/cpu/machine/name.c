/* SPDX-License-Identifier: MIT
 *
 * name.c: see name.h. Fields: arch/x86/kernel/cpu/proc.c and arch/arm64/kernel/cpuinfo.c of Linux;
 * implementers: MIDR_EL1 in the Arm Architecture Reference Manual for A-profile, and
 * arch/arm64/include/asm/cputype.h of Linux.
 */
#include "plugins/cpu/machine/name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of the first "key : value" line with that key; empty where absent. */
static void field_read(const char *text, const char *key, char *out, size_t out_size) {
    out[0] = 0;
    const char *line = strstr(text, key);
    if (line == NULL) return;
    const char *value = strchr(line, ':');
    if (value == NULL || memchr(line, '\n', (size_t)(value - line)) != NULL) return;
    value++;
    value += strspn(value, " \t");
    snprintf(out, out_size, "%.*s", (int)strcspn(value, "\n"), value);
}

static const char *implementer_name(long number) {
    switch (number) {
    case 0x41: return "Arm";
    case 0x42: return "Broadcom";
    case 0x43: return "Cavium";
    case 0x46: return "Fujitsu";
    case 0x48: return "HiSilicon";
    case 0x4e: return "NVIDIA";
    case 0x50: return "Applied Micro";
    case 0x51: return "Qualcomm";
    case 0x61: return "Apple";
    case 0x6d: return "Microsoft";
    case 0xc0: return "Ampere";
    default: return "";
    }
}

void cpu_name_read(const char *text, char *name_out, size_t name_size, char *maker_out,
                   size_t maker_size) {
    char implementer[32], part[32];
    field_read(text, "model name", name_out, name_size);
    field_read(text, "vendor_id", maker_out, maker_size);
    field_read(text, "CPU implementer", implementer, sizeof implementer);
    field_read(text, "CPU part", part, sizeof part);
    if (implementer[0] == 0) return;
    if (maker_out[0] == 0)
        snprintf(maker_out, maker_size, "%s", implementer_name(strtol(implementer, NULL, 0)));
    if (name_out[0] == 0)
        snprintf(name_out, name_size, "processor of implementer %s, part %s", implementer,
                 part[0] != 0 ? part : "unknown");
}
