/* SPDX-License-Identifier: MIT
 *
 * device_find.c: finds the device of a plugin that a specification names by its PCI address or UUID
 * instead of its place in the plugin's list, which changes with the machine's drivers. Opens
 * nothing.
 */
#include <stdio.h>
#include <string.h>

#include "core/device/runtime_internal.h"

enum { UUID_LEN = sizeof((tdm_device_info *)0)->uuid };

/* Domain (of up to 8 digits, as nvidia-smi prints it), bus, device, function. */
typedef struct pci_place {
    unsigned number[4];
} pci_place;

static bool pci_parse(const char *text, pci_place *out) {
    static const unsigned limits[4] = {UINT32_MAX, 0xff, 0x1f, 7};
    unsigned *n = out->number;
    size_t len = strlen(text);
    int end = 0;
    if (len > 16 || strspn(text, "0123456789abcdefABCDEF:.") != len) return false;
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &n[0], &n[1], &n[2], &n[3], &end) != 4 ||
        (size_t)end != len) {
        n[0] = 0; /* the usual domain */
        if (sscanf(text, "%2x:%2x.%1x%n", &n[1], &n[2], &n[3], &end) != 3 || (size_t)end != len)
            return false;
    }
    for (int i = 0; i < 4; i++)
        if (n[i] > limits[i]) return false;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* 32 hexadecimal digits, with dashes anywhere; "GPU-" in front, as nvidia-smi prints it. */
static bool uuid_parse(const char *text, uint8_t out[UUID_LEN]) {
    int n = 0;
    if (strncmp(text, "GPU-", 4) == 0) text += 4;
    for (; *text != '\0'; text++) {
        int digit = hex_digit(*text);
        if (*text == '-') continue;
        if (digit < 0 || n == 2 * UUID_LEN) return false;
        out[n / 2] = (uint8_t)(n % 2 == 0 ? digit << 4 : out[n / 2] | digit);
        n++;
    }
    return n == 2 * UUID_LEN;
}

void tdm_uuid_format(const uint8_t uuid[16], char text[TDM_UUID_TEXT_SIZE]) {
    int at = 0;
    for (int i = 0; i < UUID_LEN; i++)
        at += snprintf(text + at, (size_t)(TDM_UUID_TEXT_SIZE - at), "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

tdm_status tdm_device_spec_check(const tdm_device_spec *spec, tdm_error *err) {
    pci_place place;
    uint8_t uuid[UUID_LEN];
    if (spec->pci != NULL && !pci_parse(spec->pci, &place))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "device '%s': pci = %.64s: no PCI address such as 0000:01:00.0", spec->name,
                        spec->pci);
    if (spec->uuid != NULL && !uuid_parse(spec->uuid, uuid))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "device '%s': uuid = %.64s: no UUID, which is 32 hexadecimal digits",
                        spec->name, spec->uuid);
    return TDM_OK;
}

static bool has_pci(const tdm_open_device *dev, const tdm_device_info *info) {
    pci_place want, have;
    return dev->pci != NULL && pci_parse(dev->pci, &want) && pci_parse(info->pci_address, &have) &&
           memcmp(&want, &have, sizeof want) == 0;
}

static bool has_uuid(const tdm_open_device *dev, const tdm_device_info *info) {
    uint8_t want[UUID_LEN];
    return dev->uuid != NULL && info->has_uuid != 0 && uuid_parse(dev->uuid, want) &&
           memcmp(want, info->uuid, UUID_LEN) == 0;
}

/* What a walk over the plugin's devices found. */
typedef struct search {
    int32_t first, n;        /* devices that match all that is given: the first, and how many */
    int32_t by_pci, by_uuid; /* the first that matches each; -1 = none */
    bool is_index_there;     /* the given index is among those that match */
    char list[TDM_ERROR_MESSAGE_SIZE * 3 / 4]; /* of all devices, for messages */
    size_t used;
} search;

static void device_list(search *s, int32_t index, const tdm_device_info *info) {
    char uuid[TDM_UUID_TEXT_SIZE] = "none";
    if (info->has_uuid != 0) tdm_uuid_format(info->uuid, uuid);
    if (s->used >= sizeof s->list) return;
    int n = snprintf(s->list + s->used, sizeof s->list - s->used, "%sindex %d: %s, pci %s, uuid %s",
                     s->used > 0 ? "; " : "", (int)index, info->name,
                     info->pci_address[0] != '\0' ? info->pci_address : "none", uuid);
    s->used += n > 0 ? (size_t)n : 0;
}

static void device_match(const tdm_open_device *dev, search *s, int32_t index,
                         const tdm_device_info *info) {
    bool by_pci = has_pci(dev, info), by_uuid = has_uuid(dev, info);
    device_list(s, index, info);
    if (by_pci && s->by_pci < 0) s->by_pci = index;
    if (by_uuid && s->by_uuid < 0) s->by_uuid = index;
    if ((dev->pci != NULL && !by_pci) || (dev->uuid != NULL && !by_uuid)) return;
    if (s->n++ == 0) s->first = index;
    if (dev->has_index && dev->index == index) s->is_index_there = true;
}

/* "pci = 0000:01:00.0 and uuid = 0001..." */
static void wish_format(const tdm_open_device *dev, char *text, size_t text_size) {
    snprintf(text, text_size, "%s%s%s%s%s", dev->pci != NULL ? "pci = " : "",
             dev->pci != NULL ? dev->pci : "", dev->pci != NULL && dev->uuid != NULL ? " and " : "",
             dev->uuid != NULL ? "uuid = " : "", dev->uuid != NULL ? dev->uuid : "");
}

static tdm_status not_found(const tdm_open_device *dev, const search *s, tdm_error *err) {
    char wish[160];
    wish_format(dev, wish, sizeof wish);
    if (s->by_pci >= 0 && s->by_uuid >= 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "device '%s': %s are two devices; leave one of them out. Plugin %s has %s",
                        dev->name, wish, dev->plugin_name, s->list);
    return tdm_fail(err, TDM_NOT_FOUND, "device '%s': plugin %s has no device with %s. It has %s",
                    dev->name, dev->plugin_name, wish, s->used > 0 ? s->list : "none");
}

tdm_status tdm_open_device_find(tdm_open_device *dev, const tdm_loaded_plugin *from,
                                tdm_error *err) {
    const tdm_device_ops *ops = from->plugin->device;
    const tdm_device_params params = {sizeof params, 0, dev->n_option, dev->options};
    search s = {.by_pci = -1, .by_uuid = -1};
    tdm_error why = {0};
    char wish[160];
    int32_t n = 0;
    if (dev->pci == NULL && dev->uuid == NULL) return TDM_OK;
    tdm_status status = ops->count(from->instance, &params, &n, &why);
    if (status != TDM_OK || n == 0)
        return tdm_fail(err, status != TDM_OK ? status : TDM_NOT_FOUND,
                        "device '%s': plugin %s has no devices: %.300s", dev->name,
                        dev->plugin_name, why.message[0] != '\0' ? why.message : "no reason given");
    for (int32_t i = 0; i < n; i++) {
        tdm_device_info info = {.struct_size = sizeof info};
        if (ops->describe(from->instance, i, &params, &info, NULL) != TDM_OK) continue;
        tdm_device_info_end_texts(&info);
        device_match(dev, &s, i, &info);
    }
    if (s.n == 0) return not_found(dev, &s, err);
    wish_format(dev, wish, sizeof wish);
    if (dev->has_index && !s.is_index_there)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "device '%s': index = %d, but %s is index %d; leave index out. Plugin %s "
                        "has %s",
                        dev->name, (int)dev->index, wish, (int)s.first, dev->plugin_name, s.list);
    if (!dev->has_index && s.n > 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "device '%s': %d devices have %s; add index = N. Plugin %s has %s",
                        dev->name, (int)s.n, wish, dev->plugin_name, s.list);
    if (!dev->has_index) dev->index = s.first;
    return TDM_OK;
}
