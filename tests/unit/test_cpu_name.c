/* SPDX-License-Identifier: MIT
 *
 * test_cpu_name.c: names of processors in /proc/cpuinfo, as Linux writes it on x86-64 and AArch64.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plugins/cpu/machine/name.h"

static void expect(const char *text, const char *name, const char *maker) {
    char name_got[64], maker_got[32];
    cpu_name_read(text, name_got, sizeof name_got, maker_got, sizeof maker_got);
    assert_string_equal(name_got, name);
    assert_string_equal(maker_got, maker);
}

static void reads_names(void **state) {
    (void)state;
    expect("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n",
           "AMD EPYC", "AuthenticAMD");
    expect("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd asimddp\n"
           "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"
           "CPU revision\t: 1\n\nprocessor\t: 1\nCPU implementer\t: 0x51\n",
           "processor of implementer 0x41, part 0xd0c", "Arm");
    expect("CPU implementer\t: 0x4e\n", "processor of implementer 0x4e, part unknown", "NVIDIA");
    expect("CPU implementer\t: 0x12\nCPU part\t: 0x1\n", "processor of implementer 0x12, part 0x1",
           "");
    expect("model name\t: Cortex\nCPU implementer\t: 0x41\nCPU part\t: 0x1\n", "Cortex", "Arm");
    expect("", "", "");
    expect("model name", "", "");
    expect("model name\nvendor_id", "", "");
    expect("CPU implementer\t: \n", "", "");
}

static void cuts_names(void **state) {
    (void)state;
    char name[8], maker[4];
    cpu_name_read("vendor_id : GenuineIntel\nmodel name : Intel(R)\n", name, sizeof name, maker,
                  sizeof maker);
    assert_string_equal(name, "Intel(R");
    assert_string_equal(maker, "Gen");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_names), cmocka_unit_test(cuts_names)};
    return cmocka_run_group_tests_name("cpu_name", tests, NULL, NULL);
}
