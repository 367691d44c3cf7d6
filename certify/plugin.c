/* SPDX-License-Identifier: MIT
 *
 * plugin.c: checks of the shared object: exported symbols, entry, init and deinit, repeated
 * loading, several hosts at once, hosts of other versions.
 */
#include "certify/suite.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime.h"

static certify_verdict load_check(certify *c) {
    tdm_runtime_params params = {.struct_size = sizeof params};
    tdm_runtime *rt = NULL;
    tdm_error err = {.struct_size = sizeof err};
    if (tdm_runtime_create(&params, &rt, &err) != TDM_OK ||
        tdm_runtime_load_file(rt, c->params->file, &err) != TDM_OK)
        return certify_fail(c, "%s", err.message);
    const tdm_plugin *p = tdm_runtime_plugin(rt, 0);
    if (p->name[0] == 0 || strpbrk(p->name, " \t\n/:=[]#;\"") != NULL)
        return certify_fail(c, "its name \"%.40s\" is not a word for `plugin =`", p->name);
    if (!TDM_HAS(p, version) || p->version[0] == 0) return certify_fail(c, "no version");
    if (!TDM_HAS(p, licence) || p->licence[0] == 0) return certify_fail(c, "no licence");
    if ((p->init == NULL) != (p->deinit == NULL))
        return certify_fail(c, "init and deinit are a pair; one is missing");
    const tdm_buffer_ops *b = p->buffer;
    if (TDM_HAS(b, tensor_upload) != TDM_HAS(b, tensor_download))
        return certify_fail(c, "tensor_upload and tensor_download are a pair; one is missing");
    tdm_runtime_destroy(rt);
    return CERTIFY_PASSED;
}

/* ---- Exports ---- */

/* Symbols that the linker or a sanitizer adds to every shared object. */
static bool symbol_is_of_tools(const char *name) {
    static const char *const names[] = {"_init", "_fini", "_edata", "_end", "__bss_start"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return strncmp(name, "__asan", 6) == 0 || strncmp(name, "__odr_asan", 10) == 0 ||
           strncmp(name, "__gcov", 6) == 0 || strncmp(name, "__llvm", 6) == 0;
}

static certify_verdict symbols_judge(certify *c, const char *image, size_t size,
                                     const ElfW(Shdr) * symbols, const ElfW(Shdr) * strings) {
    bool has_entry = false;
    if (symbols->sh_offset > size || symbols->sh_size > size - symbols->sh_offset ||
        strings->sh_offset > size || strings->sh_size > size - strings->sh_offset ||
        strings->sh_size == 0 || image[strings->sh_offset + strings->sh_size - 1] != 0)
        return certify_fail(c, "its symbol table lies outside the file");
    size_t n = symbols->sh_size / sizeof(ElfW(Sym));
    for (size_t i = 0; i < n; i++) {
        ElfW(Sym) s;
        memcpy(&s, image + symbols->sh_offset + i * sizeof s, sizeof s);
        if (s.st_shndx == SHN_UNDEF || s.st_name >= strings->sh_size) continue;
        /* These macros are the same for ELF of 32 and of 64 bits. */
        if (ELF64_ST_BIND(s.st_info) == STB_LOCAL ||
            ELF64_ST_VISIBILITY(s.st_other) == STV_HIDDEN ||
            ELF64_ST_VISIBILITY(s.st_other) == STV_INTERNAL)
            continue;
        const char *name = image + strings->sh_offset + s.st_name;
        if (strcmp(name, TDM_PLUGIN_ENTRY_NAME) == 0)
            has_entry = true;
        else if (!symbol_is_of_tools(name))
            return certify_fail(c, "exports '%.100s' besides " TDM_PLUGIN_ENTRY_NAME, name);
    }
    if (!has_entry) return certify_fail(c, "does not export " TDM_PLUGIN_ENTRY_NAME);
    return CERTIFY_PASSED;
}

static certify_verdict image_judge(certify *c, const char *image, size_t size) {
    ElfW(Ehdr) head;
    ElfW(Shdr) symbols, strings;
    if (size < sizeof head) return certify_fail(c, "is no ELF file");
    memcpy(&head, image, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_shentsize != sizeof symbols)
        return certify_fail(c, "is no ELF file of this machine");
    for (size_t i = 0; i < head.e_shnum; i++) {
        size_t at = head.e_shoff + i * sizeof symbols;
        if (at > size || sizeof symbols > size - at) break;
        memcpy(&symbols, image + at, sizeof symbols);
        if (symbols.sh_type != SHT_DYNSYM) continue;
        at = head.e_shoff + symbols.sh_link * sizeof strings;
        if (at > size || sizeof strings > size - at) break;
        memcpy(&strings, image + at, sizeof strings);
        return symbols_judge(c, image, size, &symbols, &strings);
    }
    return certify_skip(c, "the file has no section table to read its symbols from");
}

static certify_verdict exports_check(certify *c) {
    FILE *file = fopen(c->params->file, "rb");
    if (file == NULL) return certify_skip(c, "the file cannot be read");
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *image = size > 0 ? malloc((size_t)size) : NULL;
    bool is_read = image != NULL && fseek(file, 0, SEEK_SET) == 0 &&
                   fread(image, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    certify_verdict verdict =
        is_read ? image_judge(c, image, (size_t)size) : certify_skip(c, "the file cannot be read");
    free(image);
    return verdict;
}

/* ---- Entry, init, deinit ---- */

static certify_verdict entry_check(certify *c) {
    tdm_plugin_entry_fn entry;
    int n_thread = certify_thread_count();
    if (certify_object_open(c, &c->object, &entry) != CERTIFY_PASSED) return CERTIFY_SKIPPED;
    for (int i = 0; i < 3; i++) {
        const tdm_plugin *plugin = NULL;
        tdm_status status = entry(&c->host.table, &plugin, NULL);
        if (status != TDM_OK || plugin == NULL)
            return certify_fail(c, "call %d returned '%s'", i + 1, tdm_status_text(status));
        if (i > 0 && plugin != c->plugin) return certify_fail(c, "returned two different tables");
        c->plugin = plugin;
    }
    if (c->host.n_call != 0)
        return certify_fail(c, "called the host %lld times: it allocates, logs or borrows",
                            (long long)c->host.n_call);
    if (certify_thread_count() > n_thread) return certify_fail(c, "started a thread");
    return CERTIFY_PASSED;
}

/* Opens and closes twice: threads of a driver may stay after the first time, but not add up. */
static certify_verdict deinit_check(certify *c) {
    int n_thread = 0;
    for (int i = 0; i < 2; i++) {
        tdm_buffer *buffer = NULL;
        certify_verdict verdict = certify_open(c);
        if (verdict != CERTIFY_PASSED && c->plugin == NULL) return verdict;
        if (c->device != NULL && certify_alloc(c, 1000, &buffer) == CERTIFY_PASSED)
            c->plugin->buffer->free(buffer);
        certify_close(c);
        if (i > 0) continue;
        (void)certify_threads_settle(1); /* joined threads leave the system's list a moment later */
        n_thread = certify_thread_count();
    }
    if (c->host.offence[0] != 0) return certify_fail(c, "%s", c->host.offence);
    if (c->host.n_live != 0)
        return certify_fail(c, "%lld allocations of the host are not freed",
                            (long long)c->host.n_live);
    if (n_thread > 0 && !certify_threads_settle(n_thread))
        return certify_fail(c, "%d threads are still running", certify_thread_count() - n_thread);
    return CERTIFY_PASSED;
}

static certify_verdict unload_check(certify *c) {
    for (int i = 0; i < 3; i++) {
        certify_verdict verdict = certify_open(c);
        if (verdict != CERTIFY_PASSED && c->plugin == NULL) return verdict;
        certify_close(c);
        if (dlopen(c->params->file, RTLD_NOW | RTLD_NOLOAD) != NULL)
            return certify_fail(c, "is still mapped after unloading it (time %d)", i + 1);
    }
    return CERTIFY_PASSED;
}

/* ---- Hosts ---- */

static certify_verdict device_use(certify *c, tdm_device *device, const char *who) {
    const tdm_buffer_ops *ops = c->plugin->buffer;
    tdm_buffer_params params = {sizeof params, 64, TDM_BUFFER_ANY};
    tdm_buffer *buffer = NULL;
    uint8_t in[64], out[64] = {0};
    tdm_error err = {.struct_size = sizeof err};
    certify_random_bytes(c, in, sizeof in);
    if (ops->alloc(device, &params, &buffer, &err) != TDM_OK ||
        ops->upload(buffer, 0, in, sizeof in, &err) != TDM_OK ||
        ops->download(buffer, 0, out, sizeof out, &err) != TDM_OK)
        return certify_fail(c, "%s: %.300s", who, err.message);
    ops->free(buffer);
    if (memcmp(in, out, sizeof in) != 0) return certify_fail(c, "%s: bytes got lost", who);
    return CERTIFY_PASSED;
}

/* Each instance must work after the other host is gone, and call only its own host. */
static certify_verdict hosts_check(certify *c) {
    certify_host second;
    tdm_plugin_entry_fn entry;
    const tdm_plugin *plugin = NULL;
    tdm_instance *instance = NULL;
    tdm_device *device = NULL;
    tdm_error err = {.struct_size = sizeof err};
    void *object;
    certify_host_init(&second);
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (certify_object_open(c, &object, &entry) != CERTIFY_PASSED) return CERTIFY_FAILED;
    if (entry(&second.table, &plugin, &err) != TDM_OK ||
        (plugin->init != NULL && plugin->init(&second.table, &instance, &err) != TDM_OK))
        return certify_fail(c, "the second host: %.300s", err.message);
    if (certify_open_on(c, instance, &device) != CERTIFY_PASSED) return CERTIFY_FAILED;
    int64_t n_call = second.n_call;
    verdict = device_use(c, c->device, "the first host, beside a second");
    if (verdict != CERTIFY_PASSED) return verdict;
    if (second.n_call != n_call)
        return certify_fail(c, "called the second host in a call for the first");
    n_call = c->host.n_call;
    verdict = device_use(c, device, "the second host");
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->host.n_call != n_call)
        return certify_fail(c, "called the first host in a call for the second");
    certify_close(c);
    if (c->host.n_foreign + second.n_foreign != 0)
        return certify_fail(c, "gave one host's memory back to another");
    memset(&c->host.table, 0, sizeof c->host.table); /* the host is gone: a call would crash */
    c->plugin = plugin;
    verdict = device_use(c, device, "the second host, the first one gone");
    if (verdict != CERTIFY_PASSED) return verdict;
    plugin->device->close(device);
    if (plugin->init != NULL) plugin->deinit(instance);
    if (second.n_foreign != 0) return certify_fail(c, "gave one host's memory back to another");
    return CERTIFY_PASSED;
}

static bool has_trapped; /* a function behind the host's struct_size was called */

static tdm_status trap_acquire(void *context, const char *name, tdm_acquired_device *device_out,
                               tdm_error *err) {
    (void)context, (void)name, (void)device_out;
    has_trapped = true;
    return tdm_fail(err, TDM_INTERNAL, "called a slot behind the host's struct_size");
}

static certify_verdict host_size_use(certify *c) {
    tdm_plugin_entry_fn entry;
    tdm_error err = {.struct_size = sizeof err};
    if (certify_object_open(c, &c->object, &entry) != CERTIFY_PASSED) return CERTIFY_SKIPPED;
    if (entry(&c->host.table, &c->plugin, &err) != TDM_OK)
        return certify_fail(c, "entry: %.300s", err.message);
    if (c->plugin->init != NULL && c->plugin->init(&c->host.table, &c->instance, &err) != TDM_OK)
        return certify_fail(c, "init: %.300s", err.message);
    certify_verdict verdict = certify_open_on(c, c->instance, &c->device);
    if (verdict == CERTIFY_PASSED) verdict = device_use(c, c->device, "its device");
    if (has_trapped) return certify_fail(c, "called a slot behind the host's struct_size");
    return verdict;
}

/* A host of an earlier version: its table ends before device_acquire. */
static certify_verdict host_smaller_check(certify *c) {
    if (certify_load(c) == CERTIFY_PASSED && TDM_HAS(c->plugin, split) &&
        TDM_HAS(c->plugin->split, split_set))
        return certify_skip(c, "a group borrows devices and needs device_acquire");
    certify_close(c);
    c->host.table.struct_size = offsetof(tdm_host, device_acquire);
    c->host.table.device_acquire = trap_acquire;
    return host_size_use(c);
}

/* A host of a later version: its table has more fields. */
static certify_verdict host_larger_check(certify *c) {
    struct {
        tdm_host table;
        uint8_t more[64];
    } later;
    tdm_plugin_entry_fn entry;
    tdm_error err = {.struct_size = sizeof err};
    later.table = c->host.table;
    later.table.struct_size = sizeof later;
    memset(later.more, 0xee, sizeof later.more);
    if (certify_object_open(c, &c->object, &entry) != CERTIFY_PASSED) return CERTIFY_SKIPPED;
    if (entry(&later.table, &c->plugin, &err) != TDM_OK ||
        (c->plugin->init != NULL && c->plugin->init(&later.table, &c->instance, &err) != TDM_OK))
        return certify_fail(c, "refused a larger host: %.300s", err.message);
    certify_verdict verdict = certify_open_on(c, c->instance, &c->device);
    return verdict == CERTIFY_PASSED ? device_use(c, c->device, "its device") : verdict;
}

static const certify_check checks[] = {
    {"plugin.load", 0,
     "plugin.h: \"Ten slots make one: the entry; init (with deinit); count and describe; open "
     "(with close); alloc (with free); upload; download; supports_op; graph_compute_sync.\"",
     load_check},
    {"plugin.exports", 0,
     "plugin.h: \"A plugin is a shared object that exports exactly one symbol, "
     "tdm_plugin_entry_v0.\"",
     exports_check},
    {"plugin.entry-pure", 0,
     "plugin.h: tdm_plugin_entry_fn: \"Pure: no driver call, no thread, no allocation; may be "
     "called any number of times.\"",
     entry_check},
    {"plugin.deinit", 0, "plugin.h: deinit: \"Frees everything, joins every thread.\"",
     deinit_check},
    {"plugin.unload", 0,
     "plugin.h: \"The core loads it […], closes them, and calls deinit before unloading.\"",
     unload_check},
    {"plugin.hosts", 0,
     "plugin.h: init: \"Makes an instance for this host; several may exist at once.\"",
     hosts_check},
    {"plugin.host-smaller", 0, "plugin.h: \"a reader uses no field beyond it [struct_size]\"",
     host_smaller_check},
    {"plugin.host-larger", 0, "plugin.h: \"fields are only appended\"", host_larger_check},
};
const certify_table certify_plugin_table = CERTIFY_TABLE(checks);
