/* SPDX-License-Identifier: MIT
 *
 * test_runtime.c: finding and loading plugins; opening, lending and closing devices; with plugins
 * that have each kind of fault (fake_plugin.c).
 */
#include "tests/unit/runtime_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "core/runtime.h"

/* ---- folders of plugins ---------------------------------------------------------------------- */

/* A folder of the test's own, with links to the plugins as built. */
static const char *folder_make(char *path, size_t size) {
    const char *tmp = getenv("TMPDIR");
    snprintf(path, size, "%s/tandem-runtime-XXXXXX", tmp != NULL && tmp[0] == '/' ? tmp : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static void folder_link(const char *folder, const char *built, const char *as) {
    char from[1024], to[1024];
    snprintf(from, sizeof from, "%s/%s.so", FAKE_PLUGIN_DIR, built);
    snprintf(to, sizeof to, "%s/%s.so", folder, as);
    if (access(from, R_OK) != 0) fail_msg("%s has not been built", from);
    assert_int_equal(symlink(from, to), 0);
}

static void folder_write(const char *folder, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void folder_remove(const char *folder) {
    char command[1200];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* The loaded plugin of that name, NULL where there is none. */
static const char *file_of(const tdm_runtime *rt, const char *name) {
    for (int32_t i = 0; i < tdm_runtime_plugin_count(rt); i++)
        if (strcmp(tdm_runtime_plugin(rt, i)->name, name) == 0)
            return tdm_runtime_plugin_file(rt, i);
    return NULL;
}

static bool begins(const char *text, const char *start) {
    return text != NULL && strncmp(text, start, strlen(start)) == 0;
}

/* ---- search ---------------------------------------------------------------------------------- */

static void test_search_order(void **state) {
    (void)state;
    char a[256], b[256], both[600];
    folder_make(a, sizeof a);
    folder_make(b, sizeof b);
    folder_link(b, "fake", "fake");
    snprintf(both, sizeof both, "%s:%s", a, b);

    /* Only the second folder of plugin-path has it. */
    tdm_runtime *rt = runtime_make(both);
    OK(tdm_runtime_load(rt, "fake", err));
    assert_true(begins(file_of(rt, "fake"), b));
    OK(tdm_runtime_load(rt, "fake", err)); /* not loaded again */
    assert_int_equal(tdm_runtime_plugin_count(rt), 1);
    tdm_runtime_destroy(rt);

    /* Both have it: the first. */
    folder_link(a, "fake", "fake");
    rt = runtime_make(both);
    OK(tdm_runtime_load(rt, "fake", err));
    assert_true(begins(file_of(rt, "fake"), a));
    tdm_runtime_destroy(rt);

    /* plugin-path before the environment, the environment where that has none. */
    setenv("TANDEM_PLUGIN_PATH", b, 1);
    rt = runtime_make(a);
    OK(tdm_runtime_load(rt, "fake", err));
    assert_true(begins(file_of(rt, "fake"), a));
    tdm_runtime_destroy(rt);
    rt = runtime_make(NULL);
    OK(tdm_runtime_load(rt, "fake", err));
    assert_true(begins(file_of(rt, "fake"), b));
    tdm_runtime_destroy(rt);
    setenv("TANDEM_PLUGIN_PATH", "", 1); /* as if unset */
    rt = runtime_make(a);
    FAILS(TDM_NOT_FOUND, "no nothere.so", tdm_runtime_load(rt, "nothere", err));
    FAILS(TDM_NOT_FOUND, a, tdm_runtime_load(rt, "nothere", err));
    FAILS(TDM_NOT_FOUND, "TANDEM_PLUGIN_PATH", tdm_runtime_load(rt, "nothere", err));
    FAILS(TDM_INVALID_ARGUMENT, "a name, not a path", tdm_runtime_load(rt, "../fake", err));
    FAILS(TDM_INVALID_ARGUMENT, "a name, not a path", tdm_runtime_load(rt, "", err));
    tdm_runtime_destroy(rt);
    unsetenv("TANDEM_PLUGIN_PATH");
    folder_remove(a);
    folder_remove(b);
}

/* A folder given to this program must exist; one of the environment is reported, and is used before
 * any search. */
static void test_folder_missing(void **state) {
    (void)state;
    char a[256], list[900];
    tdm_runtime *rt = NULL;
    folder_make(a, sizeof a);
    folder_write(a, "file", "no folder\n");
    for (int i = 0; i < 2; i++) {
        snprintf(list, sizeof list, "%s:%s/%s", a, a, i == 0 ? "missing" : "file");
        const tdm_runtime_params params = {.struct_size = sizeof params, .plugin_path = list};
        FAILS(TDM_NOT_FOUND, i == 0 ? "/missing cannot be read: No such file" : "/file cannot be",
              tdm_runtime_create(&params, &rt, err));
        assert_null(rt);
        setenv("TANDEM_PLUGIN_PATH", list, 1);
        rt = runtime_make(a);
        log_has("TANDEM_PLUGIN_PATH: folder ", 1);
        log_has(i == 0 ? "/missing cannot be read" : "/file cannot be read", 1);
        OK(tdm_runtime_load_all(rt, NULL, err));
        log_has("cannot be read", 1); /* not once more */
        tdm_runtime_destroy(rt);
        rt = NULL;
        unsetenv("TANDEM_PLUGIN_PATH");
    }
    folder_remove(a);
}

static void test_never_relative(void **state) {
    (void)state;
    char a[256], list[600], before[1024];
    folder_make(a, sizeof a);
    folder_link(a, "fake", "fake");
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(a), 0);
    tdm_runtime *rt = runtime_make(NULL); /* the current directory has it, and is not searched */
    FAILS(TDM_NOT_FOUND, "fake", tdm_runtime_load(rt, "fake", err));
    tdm_runtime_destroy(rt);
    snprintf(list, sizeof list, "%s::%s", a, a);
    const char *const wrong[] = {".", "plugins", "./plugins", ":", list, list + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const tdm_runtime_params params = {.struct_size = sizeof params, .plugin_path = wrong[i]};
        rt = NULL;
        FAILS(TDM_INVALID_ARGUMENT, "plugin-path: '", tdm_runtime_create(&params, &rt, err));
        assert_null(rt);
        setenv("TANDEM_PLUGIN_PATH", wrong[i], 1);
        FAILS(TDM_INVALID_ARGUMENT, "TANDEM_PLUGIN_PATH: '", tdm_runtime_create(NULL, &rt, err));
        unsetenv("TANDEM_PLUGIN_PATH");
    }
    snprintf(list, sizeof list, "%s:", a); /* an empty entry at the end */
    const tdm_runtime_params params = {.plugin_path = list};
    FAILS(TDM_INVALID_ARGUMENT, "not an absolute folder", tdm_runtime_create(&params, &rt, err));
    assert_int_equal(chdir(before), 0);
    folder_remove(a);
}

/* ---- plugins that fail ----------------------------------------------------------------------- */

static const struct {
    const char *name;
    tdm_status status;
    const char *text;
} failing[] = {
    {"fake_no_entry", TDM_UNSUPPORTED, "no symbol tdm_plugin_entry_v0"},
    {"fake_entry_fails", TDM_UNSUPPORTED, "entry: the host is too old"},
    {"fake_no_table", TDM_INTERNAL, "entry: gave no table"},
    {"fake_init_fails", TDM_UNAVAILABLE, "init: the fake licence has run out"},
    {"fake_no_upload", TDM_UNSUPPORTED, "required slot buffer.upload is missing"},
    {"fake_no_deinit", TDM_UNSUPPORTED, "required slot deinit (init is there) is missing"},
    {"fake_misnamed", TDM_FAILED_PRECONDITION, "calls itself 'someone_else'"},
    {"fake_text", TDM_UNAVAILABLE, "cannot be loaded: "},
};
enum { N_FAILING = sizeof failing / sizeof *failing };

static void failing_link(const char *folder) {
    for (size_t i = 0; i + 1 < N_FAILING; i++)
        folder_link(folder, failing[i].name, failing[i].name);
    folder_write(folder, "fake_text.so", "This is no shared object.\n");
}

static void test_failing(void **state) {
    (void)state;
    char a[256];
    folder_make(a, sizeof a);
    failing_link(a);
    folder_link(a, "fake", "fake");
    tdm_runtime *rt = runtime_make(a);
    for (size_t i = 0; i < N_FAILING; i++) {
        FAILS(failing[i].status, failing[i].text, tdm_runtime_load(rt, failing[i].name, err));
        FAILS(failing[i].status, failing[i].name, tdm_runtime_load(rt, failing[i].name, err));
        assert_int_equal(tdm_runtime_plugin_count(rt), 0); /* nothing of it is left */
    }
    /* A device of such a plugin reports the same; the others work. */
    tdm_open_device *dev = NULL;
    const tdm_device_spec spec = {.name = "x", .plugin = "fake_init_fails"};
    OK(tdm_runtime_declare(rt, &spec, err));
    FAILS(TDM_UNAVAILABLE, "licence", tdm_runtime_open(rt, "x", &dev, err));
    assert_null(dev);
    OK(tdm_runtime_load(rt, "fake", err));
    tdm_runtime_destroy(rt);
    log_has("deinit", 1); /* only the one that was initialised */
    folder_remove(a);
}

static void test_load_all(void **state) {
    (void)state;
    char a[256], b[256], both[900], nested[300];
    folder_make(a, sizeof a);
    folder_make(b, sizeof b);
    failing_link(a);
    folder_link(a, "fake", "fake");
    folder_link(a, "fake_no_device", "fake_no_device");
    folder_write(a, "readme.txt", "no plugin\n");
    folder_write(a, ".hidden.so", "no plugin\n");
    folder_link(b, "fake", "fake");                           /* the first of a name wins */
    snprintf(nested, sizeof nested, "%s/fake_no_device2", b); /* as in a build folder */
    assert_int_equal(mkdir(nested, 0700), 0);
    folder_link(nested, "fake_no_device2", "fake_no_device2");
    snprintf(both, sizeof both, "%s:%s", a, b);
    tdm_runtime *rt = runtime_make(both);
    int32_t n = 0;
    OK(tdm_runtime_load_all(rt, &n, err));
    log_has("cannot be read", 0); /* installed folders may be missing without a message */
    assert_int_equal(n, tdm_runtime_plugin_count(rt));
    assert_true(begins(file_of(rt, "fake"), a));
    assert_true(begins(file_of(rt, "fake_no_device"), a));
    assert_true(begins(file_of(rt, "fake_no_device2"), nested));
    for (size_t i = 0; i < N_FAILING; i++) {
        log_has(failing[i].text, 1);
        assert_null(file_of(rt, failing[i].name));
    }
    assert_null(file_of(rt, "someone_else"));
    log_has("readme", 0);
    log_has("hidden", 0);
    OK(tdm_runtime_load_all(rt, NULL, err)); /* again: nothing new */
    assert_int_equal(n, tdm_runtime_plugin_count(rt));
    tdm_runtime_destroy(rt);

    /* By file, whatever it is called; but only one of a name. */
    char file[600];
    rt = runtime_make(NULL);
    snprintf(file, sizeof file, "%s/fake_misnamed.so", a);
    OK(tdm_runtime_load_file(rt, file, err));
    assert_string_equal(tdm_runtime_plugin_file(rt, 0), file);
    FAILS(TDM_FAILED_PRECONDITION, "is loaded already", tdm_runtime_load_file(rt, file, err));
    FAILS(TDM_UNAVAILABLE, "/nowhere/x.so", tdm_runtime_load_file(rt, "/nowhere/x.so", err));
    tdm_runtime_destroy(rt);
    folder_remove(a);
    folder_remove(b);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void test_enumerate(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_make(FAKE_PLUGIN_DIR);
    OK(tdm_runtime_load(rt, "fake", err));
    OK(tdm_runtime_load(rt, "fake_no_device", err));
    int32_t n = -1;
    tdm_device_info info;
    OK(tdm_runtime_device_count(rt, 0, NULL, &n, err));
    assert_int_equal(n, 2);
    OK(tdm_runtime_device_describe(rt, 0, 1, NULL, &info, err));
    assert_int_equal(strnlen(info.vendor, sizeof info.vendor), sizeof info.vendor - 1);
    assert_string_equal(info.name, "fake1");
    FAILS(TDM_NOT_FOUND, "there are 2", tdm_runtime_device_describe(rt, 0, 2, NULL, &info, err));
    /* None is no failure, and has a reason. */
    tdm_error reason = {0};
    assert_int_equal(tdm_runtime_device_count(rt, 1, NULL, &n, &reason), TDM_OK);
    assert_int_equal(n, 0);
    assert_string_equal(reason.message, "no fake driver is installed");
    assert_int_equal(tdm_runtime_device_count(rt, 1, NULL, &n, NULL), TDM_OK);
    const tdm_device_spec spec = {.name = "none", .plugin = "fake_no_device"};
    tdm_open_device *dev = NULL;
    OK(tdm_runtime_declare(rt, &spec, err));
    FAILS(TDM_NOT_FOUND, "device 'none': no fake device 0",
          tdm_runtime_open(rt, "none", &dev, err));
    tdm_runtime_destroy(rt);
}

static void card_declare(tdm_runtime *rt, const char *name, const char *pci, const char *uuid,
                         int32_t index) {
    const tdm_device_spec spec = {.name = name,
                                  .plugin = "fake_cards",
                                  .index = index > 0 ? index : 0,
                                  .has_index = index >= 0,
                                  .pci = pci,
                                  .uuid = uuid};
    OK(tdm_runtime_declare(rt, &spec, err));
}

/* The name that the plugin gives the device that was opened. */
static void card_is(tdm_runtime *rt, const char *name, const char *card) {
    tdm_open_device *dev = NULL;
    tdm_device_info info;
    OK(tdm_runtime_open(rt, name, &dev, err));
    OK(tdm_open_device_get_info(dev, &info, err));
    assert_string_equal(info.name, card);
}

/* Devices named by PCI address or UUID; device 0 has neither, 2 and 3 share an address. */
static void test_address(void **state) {
    static const char one[] = "fe000000-0000-0000-0000-000000000001",
                      two[] = "GPU-FE000000-0000-0000-0000-000000000002",
                      none[] = "00000000000000000000000000000009";
    (void)state;
    tdm_runtime *rt = runtime_make(FAKE_PLUGIN_DIR);
    tdm_open_device *dev = NULL;
    card_declare(rt, "pci", "0000:a1:00.0", NULL, -1);
    card_declare(rt, "short", "A1:00.0", NULL, -1);
    card_declare(rt, "long", "00000000:A1:00.0", NULL, -1); /* as nvidia-smi prints it */
    card_declare(rt, "uuid", NULL, two, -1);
    card_declare(rt, "both", "a1:00.0", one, 1);
    card_declare(rt, "second", "0000:a2:00.0", NULL, 3);
    card_declare(rt, "index", NULL, NULL, 2);
    card_is(rt, "pci", "fake_cards1");
    card_is(rt, "short", "fake_cards1");
    card_is(rt, "long", "fake_cards1");
    card_is(rt, "uuid", "fake_cards2");
    card_is(rt, "both", "fake_cards1");
    card_is(rt, "second", "fake_cards3");
    card_is(rt, "index", "fake_cards2");
    card_declare(rt, "gone", "0000:b1:00.0", NULL, -1);
    card_declare(rt, "domain", "00010000:a1:00.0", NULL, -1);
    card_declare(rt, "gone uuid", "a1:00.0", none, -1);
    card_declare(rt, "two", "a1:00.0", two, -1);
    card_declare(rt, "several", "a2:00.0", NULL, -1);
    card_declare(rt, "contrary", "a1:00.0", NULL, 2);
    FAILS(TDM_NOT_FOUND,
          "device 'gone': plugin fake_cards has no device with pci = 0000:b1:00.0. It has index 0: "
          "fake_cards0, pci none, uuid none; index 1: fake_cards1, pci 0000:a1:00.0, uuid "
          "fe000000-0000-0000-0000-000000000001; index 2",
          tdm_runtime_open(rt, "gone", &dev, err));
    FAILS(TDM_NOT_FOUND, "no device with pci = 00010000:a1:00.0",
          tdm_runtime_open(rt, "domain", &dev, err));
    FAILS(TDM_NOT_FOUND, "no device with pci = a1:00.0 and uuid = 0000",
          tdm_runtime_open(rt, "gone uuid", &dev, err));
    FAILS(TDM_INVALID_ARGUMENT, "are two devices; leave one of them out",
          tdm_runtime_open(rt, "two", &dev, err));
    FAILS(TDM_INVALID_ARGUMENT, "2 devices have pci = a2:00.0; add index = N",
          tdm_runtime_open(rt, "several", &dev, err));
    FAILS(TDM_INVALID_ARGUMENT, "index = 2, but pci = a1:00.0 is index 1; leave index out",
          tdm_runtime_open(rt, "contrary", &dev, err));
    const tdm_device_spec bare = {.name = "bare", .plugin = "fake_no_device", .pci = "a1:00.0"};
    OK(tdm_runtime_declare(rt, &bare, err));
    FAILS(TDM_NOT_FOUND, "plugin fake_no_device has no devices: no fake driver is installed",
          tdm_runtime_open(rt, "bare", &dev, err));
    static const char *const bad_pci[] = {
        "",         "1",        "a1:00",   "a1:00.8",           "a1:20.0",
        "0x1:00.0", "a1:00.0 ", "-1:00.0", "000000000:01:00.0", "0000:01:00.0:",
        "g1:00.0"};
    for (size_t i = 0; i < sizeof bad_pci / sizeof *bad_pci; i++) {
        const tdm_device_spec bad = {.name = "bad", .plugin = "fake", .pci = bad_pci[i]};
        FAILS(TDM_INVALID_ARGUMENT, "no PCI address such as 0000:01:00.0",
              tdm_runtime_declare(rt, &bad, err));
    }
    static const char *const bad_uuid[] = {"", "fe", "fe000000-0000-0000-0000-00000000000g",
                                           "fe000000-0000-0000-0000-0000000000001"};
    for (size_t i = 0; i < sizeof bad_uuid / sizeof *bad_uuid; i++) {
        const tdm_device_spec bad = {.name = "bad", .plugin = "fake", .uuid = bad_uuid[i]};
        FAILS(TDM_INVALID_ARGUMENT, "no UUID, which is 32 hexadecimal digits",
              tdm_runtime_declare(rt, &bad, err));
    }
    tdm_runtime_destroy(rt);
}

static void test_open(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_make(FAKE_PLUGIN_DIR);
    tdm_open_device *a = NULL, *again = NULL, *none = NULL;
    FAILS(TDM_NOT_FOUND, "known: none", tdm_runtime_open(rt, "a", &a, err));
    declare(rt, "a", NULL);
    declare(rt, "b", (const char *const[3]){"broken=the cable is out"});
    declare(rt, "c", (const char *const[3]){"thread=2"});
    const tdm_device_spec twice = {.name = "a", .plugin = "fake"};
    FAILS(TDM_INVALID_ARGUMENT, "declared twice", tdm_runtime_declare(rt, &twice, err));
    const tdm_device_spec foreign = {.name = "d", .plugin = "nothere"};
    OK(tdm_runtime_declare(rt, &foreign, err));
    const tdm_device_spec far = {.name = "e", .plugin = "fake", .index = 7};
    OK(tdm_runtime_declare(rt, &far, err));
    FAILS(TDM_NOT_FOUND, "device 'z': not declared; known: a, b, c, d, e",
          tdm_runtime_open(rt, "z", &none, err));
    assert_int_equal(tdm_runtime_plugin_count(rt), 0); /* nothing is loaded before it is needed */
    FAILS(TDM_UNAVAILABLE, "device 'b': the cable is out", tdm_runtime_open(rt, "b", &none, err));
    FAILS(TDM_INVALID_ARGUMENT, "unknown key 'thread'", tdm_runtime_open(rt, "c", &none, err));
    FAILS(TDM_NOT_FOUND, "no nothere.so", tdm_runtime_open(rt, "d", &none, err));
    FAILS(TDM_NOT_FOUND, "device 'e': no fake device 7", tdm_runtime_open(rt, "e", &none, err));
    assert_null(none);
    OK(tdm_runtime_open(rt, "a", &a, err));
    OK(tdm_runtime_open(rt, "a", &again, err));
    assert_ptr_equal(a, again);
    log_has("open a", 1);
    assert_string_equal(tdm_open_device_name(a), "a");
    assert_string_equal(tdm_open_device_plugin(a)->name, "fake");
    assert_non_null(tdm_open_device_handle(a));
    tdm_device_info info;
    OK(tdm_open_device_get_info(a, &info, err)); /* describe's, as it has no get_info */
    assert_int_equal(strnlen(info.vendor, sizeof info.vendor), sizeof info.vendor - 1);
    assert_string_equal(info.name, "fake0");
    tdm_runtime_destroy(rt);
    log_has("close a, 0 bytes left", 1);
    log_has("deinit, 0 open", 1);
    tdm_runtime_destroy(NULL);
}

/* Where in the log `text` begins. */
static long place_of(const char *text) {
    const char *at = strstr(the_log.text, text);
    if (at == NULL) fail_msg("no '%s' in:\n%s", text, the_log.text);
    return (long)(at - the_log.text);
}

static void test_borrow(void **state) {
    (void)state;
    /* g borrows f, f borrows e; another, d, stands alone and was opened first. */
    tdm_runtime *rt = runtime_make(FAKE_PLUGIN_DIR);
    tdm_open_device *dev = NULL;
    declare(rt, "g", (const char *const[3]){"member=f"});
    declare(rt, "f", (const char *const[3]){"member=e"});
    declare(rt, "e", NULL);
    declare(rt, "d", NULL);
    OK(tdm_runtime_open(rt, "d", &dev, err));
    OK(tdm_runtime_open(rt, "g", &dev, err));
    assert_string_equal(tdm_open_device_name(dev), "g");
    assert_true(place_of("open e") < place_of("open f") && place_of("open f") < place_of("open g"));
    OK(tdm_runtime_open(rt, "e", &dev, err)); /* open already */
    log_has("open e", 1);
    tdm_runtime_destroy(rt);
    assert_true(place_of("close g") < place_of("close f"));
    assert_true(place_of("close f") < place_of("close e"));
    assert_true(place_of("close e") < place_of("deinit"));
    log_has("close", 4);
    log_has("deinit, 0 open", 1);

    /* A lender that is open before its borrower still closes behind it. */
    rt = runtime_make(FAKE_PLUGIN_DIR);
    declare(rt, "e", NULL);
    declare(rt, "f", (const char *const[3]){"member=e"});
    OK(tdm_runtime_open(rt, "e", &dev, err));
    OK(tdm_runtime_open(rt, "f", &dev, err));
    tdm_runtime_destroy(rt);
    assert_true(place_of("close f") < place_of("close e"));
}

static void test_borrow_fails(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_make(FAKE_PLUGIN_DIR);
    tdm_open_device *dev = NULL;
    declare(rt, "self", (const char *const[3]){"member=self"});
    declare(rt, "x", (const char *const[3]){"member=y"});
    declare(rt, "y", (const char *const[3]){"member=z"});
    declare(rt, "z", (const char *const[3]){"member=x"});
    declare(rt, "w", (const char *const[3]){"member=nobody"});
    declare(rt, "v", (const char *const[3]){"member=u"});
    declare(rt, "u", (const char *const[3]){"broken=the cable is out"});
    FAILS(TDM_FAILED_PRECONDITION, "member of itself", tdm_runtime_open(rt, "self", &dev, err));
    FAILS(TDM_FAILED_PRECONDITION, "device 'x': device 'y': device 'z': device 'x': is a member",
          tdm_runtime_open(rt, "x", &dev, err));
    FAILS(TDM_FAILED_PRECONDITION, "device 'y'", tdm_runtime_open(rt, "y", &dev, err)); /* again */
    FAILS(TDM_NOT_FOUND, "known: self, x, y, z, w, v, u", tdm_runtime_open(rt, "w", &dev, err));
    FAILS(TDM_UNAVAILABLE, "device 'v': device 'u': the cable",
          tdm_runtime_open(rt, "v", &dev, err));
    assert_null(dev);
    declare(rt, "a", NULL);
    OK(tdm_runtime_open(rt, "a", &dev, err)); /* the rest go on */
    tdm_runtime_destroy(rt);
    log_has("close", 1);
}

/* Hosts in one process are independent of each other; loading and unloading may be repeated. */
static void test_two_hosts(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        tdm_runtime *one = runtime_make(FAKE_PLUGIN_DIR), *two = runtime_make(FAKE_PLUGIN_DIR);
        tdm_open_device *a = open_fake(one, "a", NULL, NULL), *b = open_fake(two, "a", NULL, NULL);
        assert_ptr_not_equal(tdm_open_device_handle(a), tdm_open_device_handle(b));
        tdm_runtime_destroy(one);
        tdm_mem mem = {0};
        OK(tdm_mem_alloc(b, 64, TDM_BUFFER_ANY, &mem, err));
        tdm_mem_free(&mem);
        tdm_runtime_destroy(two);
        log_has("deinit, 0 open", 2);
    }
}

/* ---- memory, with the gaps of a level 0 plugin filled ---------------------------------------- */

static void test_memory(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_make(FAKE_PLUGIN_DIR);
    tdm_open_device *a = open_fake(rt, "a", "memory=4000000", NULL),
                    *b = open_fake(rt, "b", NULL, NULL);
    tdm_mem x = {0}, y = {0}, none = {0};
    enum { SIZE = 3000000 }; /* more than goes through the host at a time, and no multiple of it */
    const uint64_t n_before = tdm_counter_get(TDM_COUNTER_ALLOCATIONS);
    const uint64_t bytes_before = tdm_counter_get(TDM_COUNTER_BYTES_ALLOCATED);
    OK(tdm_mem_alloc(a, SIZE, TDM_BUFFER_ANY, &x, err));
    assert_int_equal(tdm_counter_get(TDM_COUNTER_ALLOCATIONS) - n_before, 1);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_BYTES_ALLOCATED) - bytes_before, SIZE);
    FAILS(TDM_RESOURCE_EXHAUSTED, "device 'a': 2000000 bytes asked for, 1000000 free",
          tdm_mem_alloc(a, 2000000, TDM_BUFFER_ANY, &none, err));
    assert_null(none.dev);
    OK(tdm_mem_alloc(b, SIZE, TDM_BUFFER_ANY, &y, err));
    assert_null(tdm_mem_host_pointer(&x, TDM_ACCESS_READ | TDM_ACCESS_WRITE));
    log_has("is told of", 0);
    const tdm_buffer_item items[2] = {{.size = 16}, {.off = 128, .size = 16}};
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = 256, .n_item = 2, .items = items};
    OK(tdm_mem_alloc_items(b, &params, &none, err));
    log_has("b is told of 2 items", 1);
    assert_int_equal(none.size, 256);
    tdm_mem_free(&none);

    /* A device that is not a group prepares no split and reports none. */
    tdm_split_report report = {.struct_size = sizeof report};
    assert_false(tdm_open_device_is_group(a));
    OK(tdm_open_device_split_prepare(a, NULL, err));
    FAILS(TDM_UNSUPPORTED, "device 'a': is not a group",
          tdm_open_device_split_report(a, NULL, &report, err));

    uint8_t *bytes = malloc(SIZE), *back = malloc(SIZE);
    assert_non_null(bytes);
    assert_non_null(back);
    for (int32_t i = 0; i < SIZE; i++) bytes[i] = (uint8_t)(i * 31 + i / 251);
    OK(tdm_mem_upload(&x, 0, bytes, SIZE, err));
    OK(tdm_mem_fill(&y, 0, SIZE, 7, err));
    OK(tdm_mem_copy(&y, 100, &x, 300, SIZE - 400, err));
    OK(tdm_mem_download(&y, 0, back, SIZE, err));
    for (int32_t i = 0; i < SIZE; i++)
        assert_int_equal(back[i], i < 100 || i >= SIZE - 300 ? 7 : bytes[i + 200]);
    OK(tdm_mem_copy(&y, 0, &x, 0, 0, err));
    OK(tdm_mem_fill(&y, 5, 0, 9, err));
    FAILS(TDM_OUT_OF_RANGE, "of a buffer of", tdm_mem_copy(&y, 0, &x, SIZE - 10, 20, err));
    FAILS(TDM_OUT_OF_RANGE, "of a buffer of", tdm_mem_copy(&y, SIZE - 10, &x, 0, 20, err));
    FAILS(TDM_OUT_OF_RANGE, "of a buffer of", tdm_mem_fill(&y, SIZE - 10, 20, 0, err));
    FAILS(TDM_OUT_OF_RANGE, "of a buffer of", tdm_mem_upload(&y, UINT64_MAX, bytes, 2, err));

    /* Tensors are stored as they are, part by part, because the device has no layout of its own. */
    const tdm_tensor_desc desc = {.struct_size = sizeof desc,
                                  .type = TDM_TYPE_Q8_0,
                                  .usage = TDM_USAGE_MATMUL,
                                  .ne = {96, 5, 1, 1}};
    const uint64_t row = 3 * 34;
    uint64_t size = 0;
    OK(tdm_open_device_tensor_size(a, &desc, &size, err));
    assert_int_equal(size, 5 * row);
    OK(tdm_mem_fill(&x, 0, 1000, 0, err));
    OK(tdm_mem_tensor_upload(&x, 64, &desc, bytes, row, 0, 3, 0, 96, err));
    /* Two rows, the second and third block of each, from a source with rows 500 apart. */
    OK(tdm_mem_tensor_upload(&x, 64, &desc, bytes + 5000, 500, 3, 2, 32, 64, err));
    OK(tdm_mem_download(&x, 0, back, 1000, err));
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t r = (i - 64) / row, c = (i - 64) % row;
        uint8_t expected = 0;
        if (i >= 64 && r < 3) expected = bytes[i - 64];
        if (i >= 64 && r >= 3 && r < 5 && c >= 34) expected = bytes[5000 + (r - 3) * 500 + c - 34];
        assert_int_equal(back[i], expected);
    }
    OK(tdm_mem_tensor_download(&x, 64, &desc, back, 200, 1, 2, 32, 32, err));
    assert_memory_equal(back, bytes + row + 34, 34);
    assert_memory_equal(back + 200, bytes + 2 * row + 34, 34);
    const int64_t wrong[][4] = {{-1, 2, 0, 96},  {4, 2, 0, 96},         {0, -1, 0, 96},
                                {0, 1, -32, 64}, {0, 1, 64, 64},        {0, 1, 16, 32},
                                {0, 1, 0, 48},   {INT64_MAX, 1, 0, 96}, {0, 1, 0, INT64_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int64_t *w = wrong[i];
        FAILS(TDM_OUT_OF_RANGE, "out of range",
              tdm_mem_tensor_upload(&x, 0, &desc, bytes, row, w[0], w[1], w[2], w[3], err));
        FAILS(TDM_OUT_OF_RANGE, "out of range",
              tdm_mem_tensor_download(&x, 0, &desc, back, row, w[0], w[1], w[2], w[3], err));
    }
    const tdm_kv_desc kv = {.struct_size = sizeof kv};
    FAILS(TDM_UNSUPPORTED, "device 'a': has no key/value cache",
          tdm_open_device_kv_page_size(a, &kv, &size, err));

    free(bytes);
    free(back);
    tdm_mem_free(&x);
    assert_null(x.dev);
    tdm_mem_free(&x);
    tdm_mem_free(NULL);
    tdm_mem_free(&y);
    tdm_runtime_destroy(rt);
    log_has("close a, 0 bytes left", 1);
}

int main(void) {
    unsetenv("TANDEM_PLUGIN_PATH");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_order),   cmocka_unit_test(test_never_relative),
        cmocka_unit_test(test_folder_missing), cmocka_unit_test(test_failing),
        cmocka_unit_test(test_load_all),       cmocka_unit_test(test_enumerate),
        cmocka_unit_test(test_open),           cmocka_unit_test(test_borrow),
        cmocka_unit_test(test_borrow_fails),   cmocka_unit_test(test_two_hosts),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_address),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
