/* SPDX-License-Identifier: MIT
 *
 * module.c: modules (compiled images of kernels), which are loaded when a plan first needs one, and
 * their functions. A module has the kernels of one file. Files whose kernels read weights give a
 * module for each type, so that a driver translates no more than a model uses.
 *
 * A kernel may have several functions (entries), which are compiled for a size each:
 * kernels/entries.h lists them, and this file chooses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/kernels/entries.h"
#include "plugins/gpu/rt/card.h"
#include "plugins/gpu/rt/early.h"

enum {
    MAX_TYPE = TDM_TYPE_LIMIT_,
    LOG_SIZE = 1024, /* bytes of messages of the driver's compiler */
    MAX_SIZE = 9     /* most entries of a kernel and type: columns of a tile 1, 2, 4 .. 256 */
};

/* The image of all modules for the emulated driver, which contains the kernels itself. */
static const char emulated_image[] = "tandem-simt";

/* The second index is the tdm_type of a weight, 0 for kernels without types. */
typedef struct rt_modules {
    pthread_mutex_t mutex;                     /* over the arrays */
    void *module[GPU_KERNEL_COUNT_][MAX_TYPE]; /* NULL = not loaded */
    bool waits[GPU_KERNEL_COUNT_][MAX_TYPE];   /* rt_function.waits of the module's functions */
    void *function[GPU_KERNEL_COUNT_][MAX_TYPE][MAX_SIZE]; /* by size_get; NULL = not loaded */
} rt_modules;

const bool rt_has_kernel[GPU_KERNEL_COUNT_] = {
#define RT_SHARED(size)                               true
#define RT_ONLY(size)                                 true
#define RT_ABSENT                                     false
#define KERNEL_ROW(NAME, name, n_operand, writes, rt) [GPU_KERNEL_##NAME] = rt,
    GPU_KERNEL_LIST(KERNEL_ROW)
#undef KERNEL_ROW
#undef RT_ABSENT
#undef RT_ONLY
#undef RT_SHARED
};

/* Kernels with an entry for each number of columns of a tile, which is spec 3. */
static bool has_sizes(int32_t kernel) {
    return kernel == GPU_KERNEL_PRODUCT_ROW || kernel == GPU_KERNEL_PRODUCT_ROW_DOT ||
           kernel == GPU_KERNEL_PRODUCT_TILE || kernel == GPU_KERNEL_PRODUCT_TILE_DOT ||
           kernel == GPU_KERNEL_PRODUCT_TILE_MATRIX || kernel == GPU_KERNEL_PRODUCT_TILE_BLOCK;
}

static bool has_types(int32_t kernel) {
    return kernel == GPU_KERNEL_GET_ROWS || has_sizes(kernel);
}

/* The name of the module that has the function of a step: "<kernel>", or "<kernel>_<type>". */
static void module_print(const gpu_step *step, char name[64]) {
    const char *kernel = gpu_kernel_name(step->kernel);
    if (has_types(step->kernel))
        snprintf(name, 64, "%s_%d", kernel, (int)step->spec[0]);
    else
        snprintf(name, 64, "%s", kernel);
}

/* 1 where a step of ATTENTION has a bias or lists, else 0. */
static int32_t has_extras(const int32_t *spec) {
    return (spec[5] & GPU_ATTENTION_EXTRAS) != 0;
}

#define PART(rows, own, extras, registers) {rows, own, extras},
static const struct { int32_t rows, own, extras; } part_sizes[] = {GPU_PART_ENTRIES(PART)};
#undef PART
enum { N_PART_SIZE = sizeof part_sizes / sizeof part_sizes[0], PART_THREADS = 64 };

/* The first entry of ATTENTION_PART that has room for a step. Each team of threads computes `rows`
 * of the query heads (spec 4). A thread has `own` of the elements of o (spec 3): columns of V,
 * which have one or two elements by the type of V. The last entry with extras, and the last
 * without, take any number of elements. */
static int32_t part_size_get(const gpu_step *step) {
    const int32_t *spec = step->spec, n_team = step->group_size / PART_THREADS;
    const int32_t rows = (spec[4] + n_team - 1) / n_team, extras = has_extras(spec);
    bool is_pair = spec[1] != TDM_TYPE_F32 && spec[1] != TDM_TYPE_F16 && spec[1] != TDM_TYPE_BF16 &&
                   spec[1] != TDM_TYPE_Q8_0;
    int32_t of_column = is_pair ? 2 : 1, n_column = spec[3] / of_column;
    int32_t own = (n_column + PART_THREADS - 1) / PART_THREADS * of_column;
    for (int32_t size = 0; size < N_PART_SIZE; size++) {
        bool is_last = size + 1 == N_PART_SIZE || part_sizes[size + 1].extras != extras;
        if (part_sizes[size].extras == extras && part_sizes[size].rows >= rows &&
            (part_sizes[size].own >= own || is_last))
            return size;
    }
    return MAX_SIZE;
}

/* Entries of LINEAR_SCAN: steps are spec 2, rows spec 3. */
#define PAIR(a, b) {a, b},
static const struct { int32_t steps, rows; } scan_sizes[] = {GPU_SCAN_ENTRIES(PAIR)};
#undef PAIR
enum { N_SCAN_SIZE = sizeof scan_sizes / sizeof scan_sizes[0] };

static int32_t scan_size_get(const int32_t *spec) {
    int32_t size = 0;
    while (size < N_SCAN_SIZE &&
           (scan_sizes[size].steps != spec[2] || scan_sizes[size].rows != spec[3]))
        size++;
    return size < N_SCAN_SIZE ? size : MAX_SIZE;
}

/* Entries of ATTENTION_TILE: room for so many elements of o, which are spec 3. */
#define TILE(elements, extras, registers) {elements, extras},
static const struct { int32_t elements, extras; } tile_sizes[] = {GPU_TILE_ENTRIES(TILE)};
#undef TILE
enum { N_TILE_SIZE = sizeof tile_sizes / sizeof tile_sizes[0] };

static int32_t tile_size_get(const int32_t *spec) {
    int32_t size = 0;
    while (size < N_TILE_SIZE &&
           (tile_sizes[size].elements < spec[3] || tile_sizes[size].extras != has_extras(spec)))
        size++;
    return size < N_TILE_SIZE ? size : MAX_SIZE;
}

/* Entries of ATTENTION_TILE_MATRIX: room for so many elements of K (spec 2) and of o (spec 3).
 * is_plain: for K and V of f16 (spec 0 and 1). Four threads share a row. */
#define MATRIX(elements, is_plain, rows, registers) {elements, is_plain, rows},
static const struct {
    int32_t elements, is_plain, rows;
} matrix_sizes[] = {GPU_TILE_MATRIX_ENTRIES(MATRIX)};
#undef MATRIX
enum { N_MATRIX_SIZE = sizeof matrix_sizes / sizeof matrix_sizes[0] };

static int32_t matrix_size_get(const gpu_step *step) {
    const int32_t *spec = step->spec, elements = spec[2] > spec[3] ? spec[2] : spec[3];
    const int32_t is_plain = spec[0] == TDM_TYPE_F16 && spec[1] == TDM_TYPE_F16;
    int32_t size = 0;
    while (size < N_MATRIX_SIZE &&
           (matrix_sizes[size].elements < elements || matrix_sizes[size].is_plain != is_plain ||
            matrix_sizes[size].rows != step->group_size / 4))
        size++;
    return size < N_MATRIX_SIZE ? size : MAX_SIZE;
}

/* Entries of ATTENTION_LATENT_MATRIX. Eight threads share a row. */
#define LATENT(rows, registers) rows,
static const int32_t latent_sizes[] = {GPU_LATENT_ENTRIES(LATENT)};
#undef LATENT
enum { N_LATENT_SIZE = sizeof latent_sizes / sizeof latent_sizes[0] };

static int32_t latent_size_get(const gpu_step *step) {
    int32_t size = 0;
    while (size < N_LATENT_SIZE && latent_sizes[size] != step->group_size / 8) size++;
    return size < N_LATENT_SIZE ? size : MAX_SIZE;
}

_Static_assert((int)N_PART_SIZE <= (int)MAX_SIZE && (int)N_TILE_SIZE <= (int)MAX_SIZE &&
                   (int)N_MATRIX_SIZE <= (int)MAX_SIZE && (int)N_LATENT_SIZE <= (int)MAX_SIZE &&
                   (int)N_SCAN_SIZE <= (int)MAX_SIZE,
               "rt_modules.function has room for all entries of a kernel");

/* The number of the entry that a step needs, 0 where its kernel has one entry; MAX_SIZE where no
 * entry computes the step. */
static int32_t size_get(const gpu_step *step) {
    int32_t size = 0;
    if (step->kernel == GPU_KERNEL_ATTENTION_TILE) return tile_size_get(step->spec);
    if (step->kernel == GPU_KERNEL_ATTENTION_TILE_MATRIX) return matrix_size_get(step);
    if (step->kernel == GPU_KERNEL_ATTENTION_LATENT_MATRIX) return latent_size_get(step);
    if (step->kernel == GPU_KERNEL_ATTENTION_PART) return part_size_get(step);
    if (step->kernel == GPU_KERNEL_LINEAR_SCAN) return scan_size_get(step->spec);
    if (has_sizes(step->kernel))
        while (size < MAX_SIZE && 1 << size != step->spec[3]) size++;
    return size;
}

/* The name of entry `size`: that of its module, followed by the columns of its tiles, or by the
 * numbers of its row in part_sizes, tile_sizes, matrix_sizes, latent_sizes or scan_sizes. */
static void symbol_print(const gpu_step *step, int32_t size, char symbol[64]) {
    module_print(step, symbol);
    size_t n = strlen(symbol);
    if (step->kernel == GPU_KERNEL_ATTENTION_PART)
        snprintf(symbol + n, 64 - n, "_%d_%d_%d", (int)part_sizes[size].rows,
                 (int)part_sizes[size].own, (int)part_sizes[size].extras);
    else if (step->kernel == GPU_KERNEL_ATTENTION_TILE)
        snprintf(symbol + n, 64 - n, "_%d_%d", (int)tile_sizes[size].elements,
                 (int)tile_sizes[size].extras);
    else if (step->kernel == GPU_KERNEL_ATTENTION_TILE_MATRIX)
        snprintf(symbol + n, 64 - n, "_%d_%d_%d", (int)matrix_sizes[size].elements,
                 (int)matrix_sizes[size].is_plain, (int)matrix_sizes[size].rows);
    else if (step->kernel == GPU_KERNEL_ATTENTION_LATENT_MATRIX)
        snprintf(symbol + n, 64 - n, "_%d", (int)latent_sizes[size]);
    else if (step->kernel == GPU_KERNEL_LINEAR_SCAN)
        snprintf(symbol + n, 64 - n, "_%d_%d", (int)scan_sizes[size].steps,
                 (int)scan_sizes[size].rows);
    else if (has_sizes(step->kernel))
        snprintf(symbol + n, 64 - n, "_%d", (int)step->spec[3]);
}

tdm_status rt_modules_create(rt_device *device, tdm_error *err) {
    rt_modules *modules = calloc(1, sizeof *modules);
    if (modules == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_init(&modules->mutex, NULL);
    device->modules = modules;
    return TDM_OK;
}

void rt_modules_destroy(rt_device *device) {
    rt_modules *modules = device->modules;
    if (modules == NULL) return;
    for (int i = 0; i < GPU_KERNEL_COUNT_; i++)
        for (int t = 0; t < MAX_TYPE; t++)
            if (modules->module[i][t] != NULL) rt_card_unload(device, modules->module[i][t]);
    pthread_mutex_destroy(&modules->mutex);
    free(modules);
    device->modules = NULL;
}

/* The failure of module_load, with the first line of the messages of the driver's compiler. */
static tdm_status load_fail(rt_device *device, rt_result result, const char *log, tdm_error *err) {
    tdm_status status = rt_fail(device, err, result, RT_FN_module_load);
    const int n_line = (int)strcspn(log, "\n");
    if (err == NULL || n_line == 0 || rt_result_is_loss(result)) return status;
    const size_t n = strlen(err->message);
    snprintf(err->message + n, sizeof err->message - n, ": %.*s", n_line, log);
    return status;
}

static rt_result image_load(rt_device *device, const void *image, char log[LOG_SIZE],
                            void **module_out) {
    int options[] = {RT_JIT_ERROR_LOG, RT_JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)LOG_SIZE};
    log[0] = '\0';
    rt_result result = device->fn->module_load(module_out, image, 2, options, values);
    log[LOG_SIZE - 1] = '\0';
    return result;
}

/* True where images of a target ("sm_90", "sm_90a") have wait_previous as an instruction. */
static bool target_waits(const char *target) {
    int number = 0;
    return rt_vendor_this.least_early > 0 && sscanf(target, "sm_%d", &number) == 1 &&
           number >= rt_vendor_this.least_early;
}

/* Loads a module: the first of its images that the driver takes. */
static tdm_status module_load(rt_device *device, const char *name, void **module_out,
                              bool *waits_out, tdm_error *err) {
    rt_result result = RT_NOT_FOUND;
    bool has_image = false;
    char log[LOG_SIZE];
    if (device->source->driver.is_emulated) {
        *waits_out = rt_early_is_capable(device);
        result = image_load(device, emulated_image, log, module_out);
        return result == RT_SUCCESS ? TDM_OK : load_fail(device, result, log, err);
    }
    for (const rt_image *image = rt_images; image->module != NULL; image++) {
        if (strcmp(image->module, name) != 0) continue;
        has_image = true;
        result = image_load(device, image->bytes, log, module_out);
        *waits_out = target_waits(image->target);
        if (result == RT_SUCCESS) return TDM_OK;
        /* Else the result of images for other targets, which are refused, would hide this one. */
        if (rt_result_is_loss(result) || result == RT_OUT_OF_MEMORY) break;
    }
    if (has_image) return load_fail(device, result, log, err);
    return tdm_fail(err, TDM_UNSUPPORTED, "%s (%s): this plugin has no compiled kernel %s",
                    device->name, device->facts->name, name);
}

static tdm_status function_load(rt_device *device, const gpu_step *step, int32_t size,
                                void **function_out, tdm_error *err) {
    rt_modules *modules = device->modules;
    char name[64], symbol[64];
    tdm_status status = TDM_OK;
    const int32_t type = has_types(step->kernel) ? step->spec[0] : 0;
    void **module = &modules->module[step->kernel][type];
    module_print(step, name);
    if (*module == NULL)
        status = module_load(device, name, module, &modules->waits[step->kernel][type], err);
    if (status != TDM_OK) {
        *module = NULL;
        return status;
    }
    symbol_print(step, size, symbol);
    rt_result result = device->fn->module_function(function_out, *module, symbol);
    if (result != RT_SUCCESS) {
        *function_out = NULL;
        return rt_fail(device, err, result, RT_FN_module_function);
    }
    /* A driver that loads lazily may leave the rest to the first launch. It may wait for the card
     * then, where a kernel may wait for another member that goes on only after the launch. */
    if (device->fn->function_load == NULL) return TDM_OK;
    result = device->fn->function_load(*function_out);
    if (result == RT_SUCCESS) return TDM_OK;
    *function_out = NULL;
    return rt_fail_symbol(device, err, result, rt_vendor_this.function_load);
}

/* Raises the function's limit of shared memory where a step needs more than the default. It is
 * raised to the device's limit, since a later step may need more. */
static tdm_status shared_allow(rt_device *device, const gpu_step *step, void *function,
                               tdm_error *err) {
    const gpu_target *target = &device->target;
    if (rt_shared_size(step) <= target->shared_size) return TDM_OK;
    rt_result result =
        device->fn->function_set(function, RT_FUNCTION_SHARED_SIZE, (int)target->shared_most);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_function_set);
}

/* The failure of a step without an entry. Which numbers of spec are a type or a size depends on the
 * kernel: the message has all that type and size_get depend on. */
static tdm_status function_fail(const rt_device *device, const gpu_step *step, tdm_error *err) {
    const int32_t *s = step->spec;
    return tdm_fail(err, TDM_INTERNAL,
                    "%s: kernel %s has no function for workgroups of %d threads with spec "
                    "%d %d %d %d %d %d",
                    device->name, gpu_kernel_name(step->kernel), (int)step->group_size, (int)s[0],
                    (int)s[1], (int)s[2], (int)s[3], (int)s[4], (int)s[5]);
}

tdm_status rt_function_get(rt_device *device, const gpu_step *step, rt_function *function_out,
                           tdm_error *err) {
    rt_modules *modules = device->modules;
    int32_t type = has_types(step->kernel) ? step->spec[0] : 0, size = size_get(step);
    if (type < 0 || type >= MAX_TYPE || size == MAX_SIZE) return function_fail(device, step, err);
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&modules->mutex);
    void **function = &modules->function[step->kernel][type][size];
    if (*function == NULL) {
        const rt_card_quiet quiet = rt_card_quiet_begin(device, device->facts->device);
        status = function_load(device, step, size, function, err);
        rt_card_quiet_end(&quiet);
    }
    *function_out = (rt_function){*function, modules->waits[step->kernel][type]};
    if (status == TDM_OK) status = shared_allow(device, step, *function, err);
    pthread_mutex_unlock(&modules->mutex);
    return status;
}

/* The targets of all images, each once, with blanks between; "none" without images. */
static void targets_print(char *text, size_t size) {
    size_t n = 0;
    snprintf(text, size, "none");
    for (const rt_image *image = rt_images; image->module != NULL && n < size; image++) {
        const rt_image *first = rt_images;
        while (strcmp(first->target, image->target) != 0) first++;
        if (first == image)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n > 0 ? " " : "", image->target);
    }
}

tdm_status rt_modules_check(rt_device *device, tdm_error *err) {
    const gpu_step fetch = {.kernel = GPU_KERNEL_FETCH};
    const int32_t *a = device->facts->attribute;
    tdm_error failed = {0};
    rt_function function;
    char targets[160], own[16];
    tdm_status status = rt_function_get(device, &fetch, &function, &failed);
    if (status == TDM_OK) return TDM_OK;
    if (status != TDM_INTERNAL && status != TDM_UNSUPPORTED)
        return tdm_fail(err, status, "%s", failed.message);
    targets_print(targets, sizeof targets);
    rt_vendor_this.target_print(device->facts->pci_address, a[RT_MAJOR], a[RT_MINOR], own);
    return tdm_fail(
        err, TDM_UNSUPPORTED,
        "%.240s; the plugin has kernels for %s, and this device is %s: build the plugin "
        "with %s=%s",
        failed.message, targets, own, rt_vendor_this.targets_option, own);
}
