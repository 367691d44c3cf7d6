/* SPDX-License-Identifier: MIT
 *
 * gguf_image.h: builds a GGUF file byte by byte, valid or damaged, and the temporary files that
 * tests open. It does not use the writer, which has tests of its own.
 */
#ifndef TESTS_UNIT_GGUF_IMAGE_H
#define TESTS_UNIT_GGUF_IMAGE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "llm/gguf/gguf.h"

typedef struct image {
    uint8_t data[16384];
    size_t len;
} image;

static inline void image_put(image *im, const void *data, size_t size) {
    assert_true(im->len + size <= sizeof im->data);
    memcpy(im->data + im->len, data, size);
    im->len += size;
}

static inline void image_u8(image *im, uint8_t v) {
    image_put(im, &v, sizeof v);
}
static inline void image_u32(image *im, uint32_t v) {
    image_put(im, &v, sizeof v);
}
static inline void image_u64(image *im, uint64_t v) {
    image_put(im, &v, sizeof v);
}

static inline void image_str(image *im, const char *text) {
    image_u64(im, strlen(text));
    image_put(im, text, strlen(text));
}

static inline void image_head(image *im, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    im->len = 0;
    image_put(im, "GGUF", 4);
    image_u32(im, version);
    image_u64(im, n_tensors);
    image_u64(im, n_keys);
}

/* Name and type; the value follows. */
static inline void image_key(image *im, const char *name, uint32_t type) {
    image_str(im, name);
    image_u32(im, type);
}

static inline void image_key_u32(image *im, const char *name, uint32_t value) {
    image_key(im, name, LLM_GGUF_U32);
    image_u32(im, value);
}

static inline void image_array(image *im, uint32_t type, uint64_t n) {
    image_u32(im, type);
    image_u64(im, n);
}

static inline void image_tensor(image *im, const char *name, uint32_t type, uint32_t n_dims,
                                const uint64_t *ne, uint64_t off) {
    image_str(im, name);
    image_u32(im, n_dims);
    for (uint32_t d = 0; d < n_dims; ++d) image_u64(im, ne[d]);
    image_u32(im, type);
    image_u64(im, off);
}

/* Bytes `fill` until the length is `len`. */
static inline void image_fill(image *im, size_t len, uint8_t fill) {
    while (im->len < len) image_u8(im, fill);
}

static inline void image_align(image *im, size_t alignment) {
    image_fill(im, (im->len + alignment - 1) / alignment * alignment, 0);
}

/* A folder of its own for one test program, made on first use, removed by image_folder_remove. */
static char image_folder[128];

static inline const char *image_path(const char *file) {
    static char path[4][256];
    static unsigned turn;
    if (image_folder[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        snprintf(image_folder, sizeof image_folder, "%s/tandem-gguf-XXXXXX",
                 tmp != NULL && strlen(tmp) < 80 ? tmp : "/tmp");
        assert_non_null(mkdtemp(image_folder));
    }
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", image_folder, file);
    return p;
}

static inline void image_save(const image *im, size_t len, const char *file) {
    FILE *f = fopen(image_path(file), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(im->data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* Saves as `file` and opens that. */
static inline tdm_status image_open(const image *im, const char *file, llm_gguf **g,
                                    tdm_error *err) {
    image_save(im, im->len, file);
    return llm_gguf_open(image_path(file), g, err);
}

/* The file must be refused with `status` and a message of one line that names the file and contains
 * `text`. */
static inline void image_refused(const image *im, tdm_status status, const char *text) {
    llm_gguf *g = NULL;
    tdm_error err = {0};
    const tdm_status found = image_open(im, "bad.gguf", &g, &err);
    if (found != status || strstr(err.message, text) == NULL)
        fail_msg("expected %s with '%s', found %s: %s", tdm_status_text(status), text,
                 tdm_status_text(found), err.message);
    assert_null(g);
    assert_int_equal(err.status, status);
    assert_non_null(strstr(err.message, "bad.gguf"));
    assert_null(strchr(err.message, '\n'));
    llm_gguf *without_error = NULL;
    assert_int_equal(llm_gguf_open(image_path("bad.gguf"), &without_error, NULL), status);
    assert_null(without_error);
}

/* A cmocka group teardown. */
static inline int image_folder_remove(void **state) {
    (void)state;
    if (image_folder[0] == '\0') return 0;
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", image_folder);
    return system(command);
}

#endif
