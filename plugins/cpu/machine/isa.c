/* SPDX-License-Identifier: MIT
 *
 * isa.c: detection of instruction sets. On x86 by CPUID and, since registers are of no use unless a
 * task switch saves them, by XGETBV (Intel SDM volume 1, 14.3 and 15.2 to 15.4). A process may use
 * the tiles of AMX after it has asked Linux for them (Documentation/arch/x86/xstate.rst). On
 * AArch64 by what Linux tells a process (Documentation/arch/arm64/elf_hwcaps.rst).
 */
#include <stdio.h>
#include <string.h>

#include "plugins/cpu/machine/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
    XCR0_AVX = 0x06,    /* SSE and AVX state */
    XCR0_AVX512 = 0xe0, /* opmask, upper halves of ZMM0-15, ZMM16-31 */
    XCR0_AMX = 0x60000  /* XTILECFG, XTILEDATA */
};

/* CPUID 7.0 EDX and 7.1 EAX; SDM volume 2, CPUID. */
enum { EDX_AMX_BF16 = 1 << 22, EDX_AMX_TILE = 1 << 24, EDX_AMX_INT8 = 1 << 25 };
enum { EAX_AVX512_BF16 = 1 << 5 };

static uint32_t xcr0_read(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Asks Linux for the tiles, for all threads of the process. Repeating it is harmless. Linux refuses
 * where a thread has an alternative signal stack that is too small for them. */
static bool tiles_request(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

static bool has_amx(uint32_t saved) {
    const uint32_t need = EDX_AMX_BF16 | EDX_AMX_TILE | EDX_AMX_INT8;
    uint32_t a, b, c, d;
    return (saved & XCR0_AMX) == XCR0_AMX && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (d & need) == need && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a & EAX_AVX512_BF16) != 0 && tiles_request();
}

uint32_t cpu_isa_detect(void) {
    const uint32_t base_need = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint32_t avx512_need = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    uint32_t a, b, c, d;
    uint32_t isa = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & base_need) != base_need) return 0;
    uint32_t saved = xcr0_read();
    if ((saved & XCR0_AVX) != XCR0_AVX || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!(b & bit_AVX2)) return 0;
    isa |= CPU_ISA_AVX2;
    if ((saved & XCR0_AVX512) == XCR0_AVX512 && (b & avx512_need) == avx512_need &&
        (c & bit_AVX512VNNI))
        isa |= CPU_ISA_AVX512;
    if ((isa & CPU_ISA_AVX512) && has_amx(saved)) isa |= CPU_ISA_AMX;
    return isa;
}

/* AMD's manual (24594, CPUID Fn0000_0001_EAX): of families beyond 15 the base field is 15, and the
 * extended field is added to it. */
bool cpu_isa_prefetch_each(void) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || d != signature_AMD_edx ||
        c != signature_AMD_ecx || !__get_cpuid(1, &a, &b, &c, &d))
        return false;
    return (a >> 8 & 0xf) == 0xf && 0xf + (a >> 20 & 0xff) >= 0x1a;
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* HWCAP bits of the kernel's arch/arm64/include/uapi/asm/hwcap.h. */
enum { HWCAP_BIT_ASIMD = 1 << 1, HWCAP_BIT_ASIMDDP = 1 << 20 };

uint32_t cpu_isa_detect(void) {
    const unsigned long need = HWCAP_BIT_ASIMD | HWCAP_BIT_ASIMDDP;
    return (getauxval(AT_HWCAP) & need) == need ? CPU_ISA_NEON : 0;
}

#else

uint32_t cpu_isa_detect(void) {
    return 0;
}

#endif

#if !defined(__x86_64__)
bool cpu_isa_prefetch_each(void) {
    return false;
}
#endif

enum { WORD_AUTO, WORD_PLAIN, WORD_AVX2, WORD_AVX512, WORD_AMX, WORD_NEON, N_WORD };

const char *const cpu_isa_words[] = {
    [WORD_AUTO] = "auto", [WORD_PLAIN] = "plain", [WORD_AVX2] = "avx2", [WORD_AVX512] = "avx512",
    [WORD_AMX] = "amx",   [WORD_NEON] = "neon",   [N_WORD] = NULL};
/* What each word but "auto" includes; the best last. */
static const uint32_t word_isa[N_WORD] = {[WORD_AVX2] = CPU_ISA_AVX2,
                                          [WORD_AVX512] = CPU_ISA_AVX512 | CPU_ISA_AVX2,
                                          [WORD_AMX] = CPU_ISA_AMX | CPU_ISA_AVX512 | CPU_ISA_AVX2,
                                          [WORD_NEON] = CPU_ISA_NEON};

tdm_status cpu_isa_parse(const char *text, uint32_t *isa_out, tdm_error *err) {
    const uint32_t have = cpu_isa_detect();
    char known[64] = "";
    for (int i = 0; i < N_WORD; i++) {
        const uint32_t isa = i == WORD_AUTO ? have : word_isa[i];
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s",
                 i == 0            ? ""
                 : i == N_WORD - 1 ? " or "
                                   : ", ",
                 cpu_isa_words[i]);
        if (strcmp(text, cpu_isa_words[i]) != 0) continue;
        if ((isa & ~have) != 0)
            return tdm_fail(err, TDM_UNSUPPORTED,
                            "isa = %s: this machine does not have it (the best here is %s)", text,
                            cpu_isa_name(have));
        *isa_out = isa;
        return TDM_OK;
    }
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "isa = %s: unknown; use %s", text, known);
}

const char *cpu_isa_name(uint32_t isa) {
    int i = N_WORD - 1;
    while (i > WORD_PLAIN && (word_isa[i] & ~isa) != 0) i--;
    return cpu_isa_words[i];
}
