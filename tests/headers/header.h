/* SPDX-License-Identifier: MIT
 *
 * header.h: compares plugins/gpu/rt/driver.h and a plugin's rt_vendor with the vendor's own header,
 * and with the driver's library where it is installed. hip.c and cuda.c include the vendor's header
 * before this one, and define
 *   CALL_name        for each row of RT_DRIVER_LIST, a call of the vendor's function with the
 *                    parameters of the row, handles and addresses converted to the vendor's types
 * A call is compiled and not executed: the compiler compares the number of parameters, and refuses
 * a pointer where an integer belongs.
 */
#ifndef TANDEM_HEADERS_HEADER_H
#define TANDEM_HEADERS_HEADER_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "plugins/gpu/rt/driver.h"

_Static_assert(sizeof(void *) == sizeof(uint64_t), "an address of the device has 64 bits");

/* rt/driver.h gives the number that the header has. */
#define SAME_NUMBER(own, theirs)                                                                   \
    _Static_assert((long long)(own) == (long long)(theirs), #own " is not " #theirs)

#define HEADER_CALL_(name, cuda, hip, params)                                                      \
    __attribute__((unused)) static size_t call_##name params {                                     \
        return sizeof(CALL_##name);                                                                \
    }

/* The text of a call as the header's macros change it: "cuMemAlloc_v2(...". */
#define HEADER_TEXT_(...) #__VA_ARGS__
#define HEADER_TEXT(...)  HEADER_TEXT_(__VA_ARGS__)

typedef struct header_call {
    const char *symbol; /* that the plugin looks up */
    const char *text;   /* of the call */
} header_call;

typedef struct header_attribute {
    rt_attribute own;
    int theirs;
} header_attribute;

/* Compares symbols with the names that the header gives their calls, and returns the number of
 * differences. `newer`: a symbol for which newer headers have another name, with the same
 * parameters; NULL = none. */
static int header_names_check(const header_call *calls, int n, const char *newer) {
    int n_bad = 0;
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(calls[i].symbol);
        if (strncmp(calls[i].text, calls[i].symbol, length) == 0 && calls[i].text[length] == '(')
            continue;
        if (newer != NULL && strcmp(newer, calls[i].symbol) == 0) continue;
        printf("%s: the header calls it %s\n", calls[i].symbol, calls[i].text);
        n_bad++;
    }
    return n_bad;
}

static int header_attributes_check(const header_attribute *attributes, int n) {
    int n_bad = 0;
    for (int i = 0; i < n; i++) {
        const int own = rt_vendor_this.attribute[attributes[i].own];
        if (own == attributes[i].theirs) continue;
        printf("attribute %d of rt_attribute: %d, but the header has %d\n", (int)attributes[i].own,
               own, attributes[i].theirs);
        n_bad++;
    }
    return n_bad;
}

/* Returns the number of symbols that the installed library does not export; 0 where none is
 * installed. */
static int header_symbols_check(const header_call *calls, int n, const char *error_symbol) {
    void *library = NULL;
    int n_bad = 0, at = 0;
    for (; library == NULL && rt_vendor_this.libraries[at] != NULL; at++)
        library = dlopen(rt_vendor_this.libraries[at], RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        printf("no %s: only the header was compared\n", rt_vendor_this.libraries[0]);
        return 0;
    }
    printf("%s\n", rt_vendor_this.libraries[at - 1]);
    for (int i = 0; i < n; i++)
        if (dlsym(library, calls[i].symbol) == NULL) {
            printf("%s: the library has no such function\n", calls[i].symbol);
            n_bad++;
        }
    if (dlsym(library, error_symbol) == NULL) {
        printf("%s: the library has no such function\n", error_symbol);
        n_bad++;
    }
    return n_bad;
}

/* driver.h declares the plugin's kernels. The calls here need none. */
const rt_image rt_images[] = {{0}};

#endif
