/* SPDX-License-Identifier: MIT
 *
 * test_options.c: the options of a group. A wrong option is refused with the key, the value and
 * the valid values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/meta/members.h"

enum { MAX_OPTION = 8 };

/* Pairs of key and value up to NULL. */
static tdm_status options_read(const char *const *pairs, meta_options *out, tdm_error *err) {
    tdm_option options[MAX_OPTION];
    int32_t n = 0;
    for (; pairs[2 * n] != NULL; n++) options[n] = (tdm_option){pairs[2 * n], pairs[2 * n + 1]};
    return meta_options_read(options, n, out, err);
}

#define READ(...) options_read((const char *const[]){__VA_ARGS__, NULL}, &o, &err)

static void test_defaults(void **context) {
    (void)context;
    meta_options o;
    tdm_error err = {0};
    assert_int_equal(READ("members", "cpu0"), TDM_OK);
    assert_int_equal(o.n_member, 1);
    assert_string_equal(o.names[0], "cpu0");
    assert_true(o.is_share_auto);
    assert_int_equal(o.split, META_SPLIT_TENSOR);
    assert_int_equal(o.attention, META_ATTENTION_HEADS);
    assert_int_equal(o.experts, META_EXPERTS_HIDDEN);
    assert_int_equal(o.reduce_type, TDM_TYPE_F32);
    assert_false(o.checks_replicas);
    assert_int_equal(o.exchange_memory, META_EXCHANGE_MEMORY_AUTO);
    assert_true(o.timeout > 0);
    assert_int_equal(o.reserve[0], 0);
}

static void *no_alloc(void *context, size_t size, size_t align) {
    (void)context, (void)size, (void)align;
    return NULL;
}

static void no_free(void *context, void *ptr, size_t size) {
    (void)context, (void)ptr, (void)size;
}

static void no_log(void *context, int32_t level, const char *format, ...) {
    (void)context, (void)level, (void)format;
}

/* The defaults that the plugin's table gives are those that hold without the option. */
static void test_table(void **context) {
    (void)context;
    const tdm_host host = {
        .struct_size = sizeof host, .alloc = no_alloc, .free = no_free, .log = no_log};
    const tdm_plugin *plugin = NULL;
    meta_options o, without;
    tdm_error err = {0};
    assert_int_equal(tdm_plugin_entry_v0(&host, &plugin, &err), TDM_OK);
    assert_int_equal(READ("members", "a"), TDM_OK);
    without = o;
    for (int32_t i = 0; i < plugin->options->n_desc; i++) {
        const tdm_option_desc desc = tdm_option_desc_at(plugin->options, i);
        assert_int_equal(READ("members", "a", desc.name, desc.default_value), TDM_OK);
        if (memcmp(&o, &without, sizeof o) != 0)
            fail_msg("%s = %s is not the default", desc.name, desc.default_value);
    }
}

static void test_values(void **context) {
    (void)context;
    meta_options o;
    tdm_error err = {0};
    assert_int_equal(READ("share", "3, 0,\t1.5e0", "members", "a , b,c", "attention", "sequence",
                          "experts", "whole", "reduce-type", "q8_0", "check", "replicas", "timeout",
                          "0.25", "exchange-memory", "peer"),
                     TDM_OK);
    assert_int_equal(o.n_member, 3);
    assert_string_equal(o.names[0], "a");
    assert_string_equal(o.names[1], "b");
    assert_string_equal(o.names[2], "c");
    assert_false(o.is_share_auto);
    assert_true(o.shares[0] == 3 && o.shares[1] == 0 && o.shares[2] == 1.5);
    assert_int_equal(o.attention, META_ATTENTION_SEQUENCE);
    assert_int_equal(o.experts, META_EXPERTS_WHOLE);
    assert_int_equal(o.reduce_type, TDM_TYPE_Q8_0);
    assert_true(o.checks_replicas);
    assert_int_equal(o.exchange_memory, META_EXCHANGE_MEMORY_PEER);
    assert_true(o.timeout == 0.25);

    assert_int_equal(READ("members", "a,b", "reserve", "1000"), TDM_OK);
    assert_true(o.reserve[0] == 1000 && o.reserve[1] == 1000);
    assert_int_equal(READ("members", "a,b", "reserve", "5,18446744073709551615"), TDM_OK);
    assert_true(o.reserve[0] == 5 && o.reserve[1] == UINT64_MAX);

    /* Whole layers have nothing to cut a cache by. */
    assert_int_equal(READ("members", "a,b", "attention", "sequence", "split", "layer"), TDM_OK);
    assert_int_equal(o.split, META_SPLIT_LAYER);
    assert_int_equal(o.attention, META_ATTENTION_HEADS);
}

typedef struct bad_options {
    const char *pairs[5];
    const char *says[3]; /* what the message must name */
} bad_options;

static const bad_options bad[] = {
    {{"share", "1"}, {"members", "missing"}},
    {{"members", ""}, {"members", "empty"}},
    {{"members", "a,,b"}, {"members", "empty"}},
    {{"members", "a,b,a"}, {"members", "'a'", "twice"}},
    {{"members", "a,0123456789012345678901234567890123456789012345678901234567890123456789"},
     {"members", "longer"}},
    {{"members", "a,b", "share", "1"}, {"share", "1 numbers for 2", "auto"}},
    {{"members", "a,b", "share", "1,2,3"}, {"share", "3 numbers for 2"}},
    {{"members", "a,b", "share", "1,-2"}, {"share = 1,-2", "'-2'", "auto"}},
    {{"members", "a,b", "share", "-0,1"}, {"share", "'-0'"}},
    {{"members", "a,b", "share", "nan,1"}, {"share", "'nan'"}},
    {{"members", "a,b", "share", "1,inf"}, {"share", "'inf'"}},
    {{"members", "a,b", "share", "0x10,1"}, {"share", "'0x10'"}},
    {{"members", "a,b", "share", "1e999,1"}, {"share", "'1e999'"}},
    {{"members", "a,b", "share", "1e308,1e308"}, {"share", "infinite"}},
    {{"members", "a,b", "share", "1,"}, {"share", "''"}},
    {{"members", "a,b", "share", "1 2,3"}, {"share", "'1 2'"}},
    {{"members", "a,b", "share", "0,0.0"}, {"share", "all are 0"}},
    {{"members", "a,b", "share", "Auto"}, {"share", "'Auto'", "auto"}},
    {{"members", "a", "split", "row"}, {"split = row", "tensor or layer"}},
    {{"members", "a", "attention", ""}, {"attention", "heads, replicate, sequence or auto"}},
    {{"members", "a", "experts", "some"}, {"experts = some", "hidden or whole"}},
    {{"members", "a", "reduce-type", "q4_0"}, {"reduce-type = q4_0", "f32, f16, bf16 or q8_0"}},
    {{"members", "a", "check", "on"}, {"check = on", "off or replicas"}},
    {{"members", "a", "timeout", "0"}, {"timeout = 0", "seconds"}},
    {{"members", "a", "timeout", "-1"}, {"timeout = -1"}},
    {{"members", "a", "timeout", "1e9"}, {"timeout = 1e9"}},
    {{"members", "a", "timeout", "5s"}, {"timeout = 5s"}},
    {{"members", "a,b", "reserve", "1,2,3"}, {"reserve", "3 numbers for 2"}},
    {{"members", "a,b", "reserve", "1G"}, {"reserve = 1G", "bytes"}},
    {{"members", "a,b", "reserve", "18446744073709551616"}, {"reserve", "bytes"}},
    {{"members", "a,b", "reserve", ""}, {"reserve", "bytes"}},
    {{"members", "a", "threads", "4"}, {"threads", "share", "reduce-type"}},
    {{"members", NULL}, {"members", "empty"}},
};

static void test_bad(void **context) {
    (void)context;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        meta_options o;
        tdm_error err = {0};
        const char *const *pairs = bad[i].pairs;
        /* A value may be NULL; the array of pairs ends with a NULL key. */
        assert_int_equal(options_read(pairs, &o, &err), TDM_INVALID_ARGUMENT);
        assert_null(strchr(err.message, '\n'));
        for (int s = 0; s < 3 && bad[i].says[s] != NULL; s++)
            if (strstr(err.message, bad[i].says[s]) == NULL)
                fail_msg("'%s' does not say '%s'", err.message, bad[i].says[s]);
        assert_int_equal(options_read(pairs, &o, NULL), TDM_INVALID_ARGUMENT);
    }
}

/* 64 members and shares are read, 65 of either are not. */
static void test_most(void **context) {
    (void)context;
    char members[512] = "", shares[512] = "";
    meta_options o;
    tdm_error err = {0};
    for (int i = 0; i < TDM_MAX_MEMBERS; i++) {
        snprintf(members + strlen(members), 8, "%sm%d", i > 0 ? "," : "", i);
        snprintf(shares + strlen(shares), 8, "%s%d", i > 0 ? "," : "", i);
    }
    assert_int_equal(READ("members", members, "share", shares), TDM_OK);
    assert_int_equal(o.n_member, TDM_MAX_MEMBERS);
    assert_string_equal(o.names[TDM_MAX_MEMBERS - 1], "m63");
    assert_true(o.shares[TDM_MAX_MEMBERS - 1] == TDM_MAX_MEMBERS - 1);
    snprintf(shares + strlen(shares), 8, ",1");
    assert_int_equal(READ("members", members, "share", shares), TDM_INVALID_ARGUMENT);
    snprintf(members + strlen(members), 8, ",more");
    assert_int_equal(READ("members", members), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "64"));
}

/* A later value of a key replaces an earlier one. */
static void test_last_counts(void **context) {
    (void)context;
    meta_options o;
    tdm_error err = {0};
    assert_int_equal(READ("members", "a,b,c", "members", "d,e", "share", "1,2", "share", "auto",
                          "split", "layer", "split", "tensor"),
                     TDM_OK);
    assert_int_equal(o.n_member, 2);
    assert_string_equal(o.names[0], "d");
    assert_true(o.is_share_auto);
    assert_int_equal(o.split, META_SPLIT_TENSOR);
}

static meta_device members_of(const char *allow) {
    static const tdm_plugin plugins[2] = {{.name = "vulkan"}, {.name = "cuda"}};
    meta_options o;
    tdm_error err = {0};
    assert_int_equal(READ("members", "a,b,c", "allow-duplicate", allow), TDM_OK);
    meta_device device = {.options = o, .n_member = 3};
    for (int32_t d = 0; d < 3; d++) {
        device.members[d].name = (const char *const[3]){"a", "b", "c"}[d];
        device.members[d].acquired.plugin = &plugins[d == 2];
    }
    return device;
}

/* One card under two plugins is refused by address or UUID, whatever the case of the letters.
 * Devices without either are exempt. */
static void test_duplicates(void **context) {
    (void)context;
    tdm_error err = {0};
    static meta_device device;
    device = members_of("no");
    assert_int_equal(meta_duplicates_check(&device, &err), TDM_OK);
    snprintf(device.members[0].info.pci_address, 16, "0000:0A:00.0");
    snprintf(device.members[1].info.pci_address, 16, "0000:0b:00.0");
    assert_int_equal(meta_duplicates_check(&device, &err), TDM_OK);
    snprintf(device.members[2].info.pci_address, 16, "0000:0a:00.0");
    assert_int_equal(meta_duplicates_check(&device, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(
        strstr(err.message, "'a' (vulkan) and 'c' (cuda) are the same card at 0000:0A"));
    assert_non_null(strstr(err.message, "allow-duplicate"));
    device = members_of("yes");
    snprintf(device.members[0].info.pci_address, 16, "0000:0A:00.0");
    snprintf(device.members[2].info.pci_address, 16, "0000:0a:00.0");
    assert_int_equal(meta_duplicates_check(&device, &err), TDM_OK);
    assert_true(device.members[0].shares_card && device.members[2].shares_card);
    assert_false(device.members[1].shares_card);
    assert_true(device.options.allows_duplicate);
    device = members_of("no");
    memset(device.members[1].info.uuid, 7, 16);
    memset(device.members[2].info.uuid, 7, 16);
    device.members[1].info.has_uuid = 1; /* the other has none: zeros or rubbish do not count */
    assert_int_equal(meta_duplicates_check(&device, &err), TDM_OK);
    device.members[2].info.has_uuid = 1;
    assert_int_equal(meta_duplicates_check(&device, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "'b' (vulkan) and 'c' (cuda) are the same card;"));
    device.members[2].info.uuid[15] = 8;
    assert_int_equal(meta_duplicates_check(&device, &err), TDM_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),   cmocka_unit_test(test_table),
        cmocka_unit_test(test_values),     cmocka_unit_test(test_bad),
        cmocka_unit_test(test_most),       cmocka_unit_test(test_last_counts),
        cmocka_unit_test(test_duplicates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
