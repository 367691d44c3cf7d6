/* SPDX-License-Identifier: MIT
 *
 * test_gguf_split.c: models split into several files: opened by the first, and every way in which
 * the files can fail to belong together.
 */
#include "tests/unit/gguf_image.h"

/* The keys of a part; negative: the key is absent. */
typedef struct part_says {
    int64_t number, count, n_tensors;
} part_says;

static const char *const part_files[] = {"model-00001-of-00003.gguf", "model-00002-of-00003.gguf",
                                         "model-00003-of-00003.gguf"};
static const char *const tensor_names[] = {"one", "two", "three"};

static void part_save(const char *file, part_says says, const char *tensor, uint8_t fill) {
    const struct {
        const char *name;
        int64_t value;
    } keys[] = {{"split.no", says.number},
                {"split.count", says.count},
                {"split.tensors.count", says.n_tensors}};
    uint64_t n_keys = 1;
    for (int i = 0; i < 3; ++i) n_keys += keys[i].value >= 0;
    image im;
    image_head(&im, 3, 1, n_keys);
    image_key_u32(&im, "fill", fill);
    for (int i = 0; i < 3; ++i) {
        if (keys[i].value < 0) continue;
        /* As gguf-split writes them: two u16 and an i32. */
        image_key(&im, keys[i].name, i < 2 ? LLM_GGUF_U16 : LLM_GGUF_I32);
        image_put(&im, &keys[i].value, i < 2 ? 2 : 4);
    }
    image_tensor(&im, tensor, TDM_TYPE_F32, 1, (uint64_t[]){8}, 0);
    image_align(&im, 32);
    image_fill(&im, im.len + 32, fill);
    image_save(&im, im.len, file);
}

static void parts_save(void) {
    for (int p = 0; p < 3; ++p)
        part_save(part_files[p], (part_says){p, 3, 3}, tensor_names[p], (uint8_t)(p + 1));
}

static void expect(const char *file, tdm_status status, const char *text, const char *named) {
    llm_gguf *g = NULL;
    tdm_error err = {0};
    const tdm_status found = llm_gguf_open(image_path(file), &g, &err);
    if (found != status || strstr(err.message, text) == NULL || strstr(err.message, named) == NULL)
        fail_msg("expected %s, '%s' and '%s', found %s: %s", tdm_status_text(status), text, named,
                 tdm_status_text(found), err.message);
    assert_null(g);
}

static void test_whole(void **state) {
    (void)state;
    parts_save();
    llm_gguf *g = NULL;
    tdm_error err = {0};
    if (llm_gguf_open(image_path(part_files[0]), &g, &err) != TDM_OK) fail_msg("%s", err.message);
    assert_int_equal(llm_gguf_part_count(g), 3);
    assert_int_equal(llm_gguf_tensor_count(g), 3);
    uint32_t fill = 0;
    assert_int_equal(llm_gguf_get_u32(g, "fill", 1, &fill, &err), TDM_OK);
    assert_int_equal(fill, 1); /* the first part's keys */
    for (uint32_t p = 0; p < 3; ++p) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_find(g, tensor_names[p]);
        assert_ptr_equal(tensor, llm_gguf_tensor_at(g, p));
        assert_int_equal(tensor->part, p);
        assert_int_equal(((const uint8_t *)tensor->data)[31], p + 1);
        assert_non_null(strstr(llm_gguf_part_name(g, p), part_files[p]));
    }
    assert_non_null(strstr(llm_gguf_name(g), part_files[0]));
    llm_gguf_close(g);

    /* A split that consists of one file, under any name. */
    part_save("single.gguf", (part_says){0, 1, 1}, "one", 1);
    assert_int_equal(llm_gguf_open(image_path("single.gguf"), &g, &err), TDM_OK);
    llm_gguf_close(g);
}

static void test_wrong_part(void **state) {
    (void)state;
    parts_save();
    expect(part_files[1], TDM_INVALID_ARGUMENT, "is part 2 of 3", "'-00001-of-00003.gguf'");
    part_save("renamed.gguf", (part_says){0, 3, 3}, "one", 1);
    expect("renamed.gguf", TDM_INVALID_ARGUMENT, "rename it to end in '-00001-of-00003.gguf'",
           "renamed.gguf");
    part_save("model-00001-of-00003.gguf", (part_says){0, 4, 3}, "one", 1);
    expect(part_files[0], TDM_INVALID_ARGUMENT, "-00001-of-00004.gguf", part_files[0]);
    part_save("m.gguf", (part_says){0, 3, 3}, "one", 1); /* shorter than the suffix */
    expect("m.gguf", TDM_INVALID_ARGUMENT, "rename it", "m.gguf");
}

static void test_missing_part(void **state) {
    (void)state;
    for (int p = 1; p < 3; ++p) {
        parts_save();
        assert_int_equal(remove(image_path(part_files[p])), 0);
        char text[64];
        snprintf(text, sizeof text, "part %d of 3 is missing", p + 1);
        expect(part_files[0], TDM_NOT_FOUND, text, part_files[p]);
    }
}

static void test_foreign_part(void **state) {
    (void)state;
    static const part_says wrong[] = {
        {0, 3, 3}, {1, 3, 3},  {3, 3, 3},  {2, 2, 3},  {2, 4, 3},
        {2, 3, 2}, {-1, 3, 3}, {2, -1, 3}, {2, 3, -1}, {-1, -1, -1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        parts_save();
        part_save(part_files[2], wrong[i], "three", 3);
        expect(part_files[0], TDM_DATA_LOSS, "does not belong to the model", part_files[2]);
    }
    /* A part that is no GGUF file, or cut short. */
    parts_save();
    image im = {.len = 0};
    image_put(&im, "nonsense", 8);
    image_save(&im, im.len, part_files[1]);
    expect(part_files[0], TDM_DATA_LOSS, "is not a GGUF file", part_files[1]);
    parts_save();
    assert_int_equal(truncate(image_path(part_files[2]), 160), 0);
    expect(part_files[0], TDM_DATA_LOSS, "the file is truncated, download it again", part_files[2]);
}

static void test_tensors_over_parts(void **state) {
    (void)state;
    for (int p = 0; p < 3; ++p) part_save(part_files[p], (part_says){p, 3, 4}, tensor_names[p], 1);
    expect(part_files[0], TDM_DATA_LOSS, "hold 3 tensors, but split.tensors.count is 4",
           part_files[0]);
    parts_save();
    part_save(part_files[2], (part_says){2, 3, 3}, "one", 3);
    expect(part_files[0], TDM_DATA_LOSS, "tensor 'one' occurs twice", "model-0000");
}

static void test_wrong_keys(void **state) {
    (void)state;
    image im;
    image_head(&im, 3, 0, 1);
    image_key(&im, "split.count", LLM_GGUF_STRING);
    image_str(&im, "3");
    image_refused(&im, TDM_DATA_LOSS, "'split.count' is of type string");
    image_head(&im, 3, 0, 1);
    image_key_u32(&im, "split.count", 100000);
    image_refused(&im, TDM_OUT_OF_RANGE, "'split.count' is 100000");
    image_head(&im, 3, 0, 1);
    image_key(&im, "split.no", LLM_GGUF_I32);
    image_u32(&im, UINT32_MAX);
    image_refused(&im, TDM_OUT_OF_RANGE, "'split.no' is -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_wrong_part),
        cmocka_unit_test(test_missing_part),
        cmocka_unit_test(test_foreign_part),
        cmocka_unit_test(test_tensors_over_parts),
        cmocka_unit_test(test_wrong_keys),
    };
    return cmocka_run_group_tests(tests, NULL, image_folder_remove);
}
