/* SPDX-License-Identifier: MIT
 *
 * gguf_part.c: maps one GGUF file and checks its whole header before it is used.
 *
 * Layout (ggml-org/ggml, docs/gguf.md): magic, version, number of tensors, number of keys, the
 * keys, a description of each tensor, padding, the tensors' bytes. Every length in the
 * file is compared with the rest of the file before it is used, and every count before memory is
 * allocated for it. So a hostile file costs time and memory in proportion to its size. Names are
 * copied, because the file does not terminate them.
 */
#include "llm/gguf/gguf_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the GGUF reader returns little-endian bytes without conversion"
#endif

/* Larger than in any real model. A larger count is refused before memory is allocated for it. */
#define KEYS_MAX         65536u
#define TENSORS_MAX      (1u << 20)
#define KEY_NAME_MAX     65535u     /* docs/gguf.md */
#define TENSOR_NAME_MAX  255u       /* docs/gguf.md says 64; merges and adapters have longer ones */
#define ALIGNMENT_MAX    (1u << 20) /* docs/gguf.md sets only the lower bound of 8 */
#define ARRAY_DEPTH_MAX  8
#define HEADER_SIZE      24u
#define KEY_SIZE_MIN     (8u + 1u + 4u + 1u)           /* name length, name, type, value */
#define TENSOR_SIZE_MIN  (8u + 1u + 4u + 8u + 4u + 8u) /* name, n_dims, one dim, type, offset */
#define NAMES_CHUNK_SIZE 65536u
#define TRUNCATED_OR_BAD "the file is truncated or corrupt, download it again"
#define CORRUPT          "the file is corrupt, download it again"

struct llm_gguf_names {
    llm_gguf_names *next;
    size_t used, size; /* bytes */
    char text[];
};

/* The item being read. `what` and `name` name it in messages: "key 'general.type'". */
typedef struct cursor {
    llm_gguf_part *part;
    uint64_t pos; /* bytes from the start of the file, never past its size */
    const char *what;
    const char *name; /* NULL while the name is unknown; messages then have `number` */
    uint64_t number;
    tdm_error *err;
} cursor;

static tdm_status cursor_fail(const cursor *c, const char *problem, const char *way_out) {
    if (c->what == NULL)
        return tdm_fail(c->err, TDM_DATA_LOSS, "%s: %s; %s", c->part->shown, problem, way_out);
    if (c->name == NULL)
        return tdm_fail(c->err, TDM_DATA_LOSS, "%s: %s %" PRIu64 ": %s; %s", c->part->shown,
                        c->what, c->number, problem, way_out);
    return tdm_fail(c->err, TDM_DATA_LOSS, "%s: %s '%.80s': %s; %s", c->part->shown, c->what,
                    c->name, problem, way_out);
}

static uint64_t cursor_left(const cursor *c) {
    return c->part->size - c->pos;
}

static tdm_status cursor_read(cursor *c, void *value, size_t size) {
    if (cursor_left(c) < size)
        return cursor_fail(c, "the file ends in the middle of it",
                           "the file is truncated, download it again");
    memcpy(value, c->part->base + c->pos, size);
    c->pos += size;
    return TDM_OK;
}

static tdm_status cursor_read_str(cursor *c, llm_gguf_str *value) {
    uint64_t len = 0;
    tdm_status status = cursor_read(c, &len, sizeof len);
    if (status != TDM_OK) return status;
    if (len > cursor_left(c)) {
        char problem[128];
        snprintf(problem, sizeof problem,
                 "a string of %" PRIu64 " bytes runs past the end of the file", len);
        return cursor_fail(c, problem, TRUNCATED_OR_BAD);
    }
    value->ptr = (const char *)c->part->base + c->pos;
    value->len = (size_t)len;
    c->pos += len;
    return TDM_OK;
}

/* Refuses control characters in names: names are NUL-terminated and stand in messages of one
 * line. */
static tdm_status cursor_read_name(cursor *c, size_t len_max, const char **name) {
    llm_gguf_str text;
    tdm_status status = cursor_read_str(c, &text);
    if (status != TDM_OK) return status;
    char problem[128];
    if (text.len == 0) return cursor_fail(c, "its name is empty", CORRUPT);
    if (text.len > len_max) {
        snprintf(problem, sizeof problem, "its name has %zu bytes, the limit is %zu", text.len,
                 len_max);
        return cursor_fail(c, problem, CORRUPT);
    }
    for (size_t i = 0; i < text.len; ++i) {
        unsigned char byte = (unsigned char)text.ptr[i];
        if (byte < 0x20 || byte == 0x7f) {
            snprintf(problem, sizeof problem, "its name contains the control character 0x%02x",
                     byte);
            return cursor_fail(c, problem, CORRUPT);
        }
    }
    llm_gguf_names *chunk = c->part->names;
    if (chunk == NULL || chunk->size - chunk->used < text.len + 1) {
        size_t size = text.len + 1 > NAMES_CHUNK_SIZE ? text.len + 1 : NAMES_CHUNK_SIZE;
        chunk = malloc(sizeof *chunk + size);
        if (chunk == NULL)
            return tdm_fail(c->err, TDM_RESOURCE_EXHAUSTED, "%s: not enough memory for names",
                            c->part->shown);
        chunk->next = c->part->names;
        chunk->used = 0;
        chunk->size = size;
        c->part->names = chunk;
    }
    char *copy = chunk->text + chunk->used;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    chunk->used += text.len + 1;
    *name = copy;
    return TDM_OK;
}

size_t llm_gguf_type_size(llm_gguf_type type) {
    static const uint8_t size[LLM_GGUF_TYPE_COUNT_] = {
        [LLM_GGUF_U8] = 1,  [LLM_GGUF_I8] = 1,  [LLM_GGUF_U16] = 2, [LLM_GGUF_I16] = 2,
        [LLM_GGUF_U32] = 4, [LLM_GGUF_I32] = 4, [LLM_GGUF_F32] = 4, [LLM_GGUF_BOOL] = 1,
        [LLM_GGUF_U64] = 8, [LLM_GGUF_I64] = 8, [LLM_GGUF_F64] = 8,
    };
    return (unsigned)type < LLM_GGUF_TYPE_COUNT_ ? size[type] : 0;
}

static tdm_status cursor_read_type(cursor *c, llm_gguf_type *type) {
    uint32_t raw = 0;
    tdm_status status = cursor_read(c, &raw, sizeof raw);
    if (status != TDM_OK) return status;
    if (raw >= LLM_GGUF_TYPE_COUNT_) {
        char problem[96];
        snprintf(problem, sizeof problem, "its type is the unknown number %" PRIu32, raw);
        return cursor_fail(c, problem, CORRUPT);
    }
    *type = (llm_gguf_type)raw;
    return TDM_OK;
}

static tdm_status cursor_check_bools(const cursor *c, const uint8_t *data, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i)
        if (data[i] > 1) return cursor_fail(c, "a truth value is neither 0 nor 1", CORRUPT);
    return TDM_OK;
}

/* Checks and skips an array. The index of strings is built for the outermost array (`depth` 0)
 * only, because callers cannot read inner ones. */
static tdm_status cursor_read_array(cursor *c, int depth, llm_gguf_array *array) {
    memset(array, 0, sizeof *array);
    tdm_status status = cursor_read_type(c, &array->type);
    if (status != TDM_OK) return status;
    status = cursor_read(c, &array->n, sizeof array->n);
    if (status != TDM_OK) return status;
    array->data = c->part->base + c->pos;

    size_t element_size = llm_gguf_type_size(array->type);
    /* The smallest element: of a string the length, of an array the type and count. */
    size_t element_min = element_size != 0                ? element_size
                         : array->type == LLM_GGUF_STRING ? sizeof(uint64_t)
                                                          : sizeof(uint32_t) + sizeof(uint64_t);
    if (array->n > cursor_left(c) / element_min) {
        char problem[128];
        snprintf(problem, sizeof problem,
                 "an array of %" PRIu64 " elements runs past the end of the file", array->n);
        return cursor_fail(c, problem, TRUNCATED_OR_BAD);
    }
    if (element_size != 0) {
        if (array->type == LLM_GGUF_BOOL) {
            status = cursor_check_bools(c, array->data, array->n);
            if (status != TDM_OK) return status;
        }
        c->pos += array->n * element_size;
        return TDM_OK;
    }
    if (array->type == LLM_GGUF_ARRAY) {
        if (depth + 1 >= ARRAY_DEPTH_MAX) return cursor_fail(c, "arrays nest too deep", CORRUPT);
        for (uint64_t i = 0; i < array->n; ++i) {
            llm_gguf_array inner;
            status = cursor_read_array(c, depth + 1, &inner);
            if (status != TDM_OK) return status;
        }
        return TDM_OK;
    }
    uint64_t *string_off = NULL;
    if (depth == 0 && array->n > 0) {
        string_off = malloc(array->n * sizeof *string_off);
        if (string_off == NULL)
            return tdm_fail(c->err, TDM_RESOURCE_EXHAUSTED,
                            "%s: not enough memory for %" PRIu64 " strings of '%.80s'",
                            c->part->shown, array->n, c->name);
        array->string_off = string_off;
    }
    const uint64_t start = c->pos;
    for (uint64_t i = 0; i < array->n; ++i) {
        if (string_off != NULL) string_off[i] = c->pos - start;
        llm_gguf_str text;
        status = cursor_read_str(c, &text);
        if (status != TDM_OK) {
            free(string_off);
            array->string_off = NULL;
            return status;
        }
    }
    return TDM_OK;
}

/* Checks and skips the value of a key. */
static tdm_status cursor_read_value(cursor *c, llm_gguf_key *key) {
    if (key->type == LLM_GGUF_ARRAY) return cursor_read_array(c, 0, &key->array);
    if (key->type == LLM_GGUF_STRING) {
        llm_gguf_str text;
        return cursor_read_str(c, &text);
    }
    uint8_t value[8];
    tdm_status status = cursor_read(c, value, llm_gguf_type_size(key->type));
    if (status != TDM_OK || key->type != LLM_GGUF_BOOL) return status;
    return cursor_check_bools(c, value, 1);
}

static tdm_status cursor_read_key(cursor *c, llm_gguf_key *key) {
    memset(key, 0, sizeof *key);
    c->name = NULL;
    tdm_status status = cursor_read_name(c, KEY_NAME_MAX, &key->name);
    if (status != TDM_OK) return status;
    c->name = key->name;
    status = cursor_read_type(c, &key->type);
    if (status != TDM_OK) return status;
    key->data = c->part->base + c->pos;
    status = cursor_read_value(c, key);
    key->size = (size_t)(c->part->base + c->pos - key->data);
    return status;
}

static int key_compare(const void *a, const void *b) {
    return strcmp((*(const llm_gguf_key *const *)a)->name, (*(const llm_gguf_key *const *)b)->name);
}

static tdm_status part_read_keys(llm_gguf_part *part, cursor *c, uint64_t n) {
    tdm_error *err = c->err;
    part->keys = calloc(n > 0 ? n : 1, sizeof *part->keys);
    part->key_index = malloc((n > 0 ? n : 1) * sizeof *part->key_index);
    if (part->keys == NULL || part->key_index == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: not enough memory for %" PRIu64 " keys",
                        part->shown, n);
    c->what = "key";
    for (uint64_t i = 0; i < n; ++i) {
        c->number = i;
        /* Counted before it is read, so that closing frees the memory of a key that fails. */
        part->n_keys = (uint32_t)i + 1;
        part->key_index[i] = &part->keys[i];
        tdm_status status = cursor_read_key(c, &part->keys[i]);
        if (status != TDM_OK) return status;
    }
    /* Sorted instead of hashed: no file can make a lookup or this check slow. */
    qsort(part->key_index, part->n_keys, sizeof *part->key_index, key_compare);
    for (uint32_t i = 1; i < part->n_keys; ++i)
        if (key_compare(&part->key_index[i - 1], &part->key_index[i]) == 0)
            return tdm_fail(err, TDM_DATA_LOSS, "%s: key '%.80s' occurs twice; " CORRUPT,
                            part->shown, part->key_index[i]->name);
    return TDM_OK;
}

const llm_gguf_key *llm_gguf_part_key_find(const llm_gguf_part *part, const char *name) {
    const llm_gguf_key wanted = {.name = name};
    const llm_gguf_key *wanted_ptr = &wanted;
    const llm_gguf_key **found = part->n_keys == 0
                                     ? NULL
                                     : bsearch(&wanted_ptr, part->key_index, part->n_keys,
                                               sizeof *part->key_index, key_compare);
    return found != NULL ? *found : NULL;
}

static tdm_status part_read_alignment(llm_gguf_part *part, tdm_error *err) {
    part->alignment = LLM_GGUF_ALIGNMENT_DEFAULT;
    const llm_gguf_key *key = llm_gguf_part_key_find(part, "general.alignment");
    if (key == NULL) return TDM_OK;
    int64_t value = 0;
    tdm_status status = llm_gguf_key_integer(key, part->shown, 0, UINT32_MAX, &value, err);
    if (status != TDM_OK) return status;
    if (value < 8 || value > ALIGNMENT_MAX || (value & (value - 1)) != 0)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: key 'general.alignment' is %" PRId64
                        ", but must be a power of two from 8 to %u; " CORRUPT,
                        part->shown, value, ALIGNMENT_MAX);
    part->alignment = (uint32_t)value;
    return TDM_OK;
}

/* The bytes of a tensor in the file, for the check that no two overlap. */
typedef struct extent {
    uint64_t off, size; /* bytes from the start of the tensor data */
    uint32_t tensor;
} extent;

static int extent_compare(const void *a, const void *b) {
    const extent *x = a, *y = b;
    if (x->off != y->off) return x->off < y->off ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Reads one description, and computes the size if the type is known. Whether the bytes are inside
 * the file is checked after the last description. */
static tdm_status cursor_read_tensor(cursor *c, llm_gguf_tensor *tensor, extent *where) {
    memset(tensor, 0, sizeof *tensor);
    char problem[160];
    c->name = NULL;
    tdm_status status = cursor_read_name(c, TENSOR_NAME_MAX, &tensor->name);
    if (status != TDM_OK) return status;
    c->name = tensor->name;
    uint32_t n_dims = 0;
    status = cursor_read(c, &n_dims, sizeof n_dims);
    if (status != TDM_OK) return status;
    if (n_dims < 1 || n_dims > 4) {
        snprintf(problem, sizeof problem, "has %" PRIu32 " dimensions, not 1 to 4", n_dims);
        return cursor_fail(c, problem, CORRUPT);
    }
    tensor->n_dims = (int32_t)n_dims;
    int64_t n_elements = 1;
    for (uint32_t d = 0; d < 4; ++d) {
        uint64_t ne = 1;
        if (d < n_dims && (status = cursor_read(c, &ne, sizeof ne)) != TDM_OK) return status;
        if (ne == 0 || ne > INT64_MAX ||
            __builtin_mul_overflow(n_elements, (int64_t)ne, &n_elements)) {
            snprintf(problem, sizeof problem,
                     ne == 0 ? "dimension %" PRIu32 " is %" PRIu64
                             : "has an impossible size (dimension %" PRIu32 " is %" PRIu64 ")",
                     d, ne);
            return cursor_fail(c, problem, CORRUPT);
        }
        tensor->ne[d] = (int64_t)ne;
    }
    status = cursor_read(c, &tensor->type_raw, sizeof tensor->type_raw);
    if (status != TDM_OK) return status;
    status = cursor_read(c, &where->off, sizeof where->off);
    if (status != TDM_OK) return status;
    if (where->off % c->part->alignment != 0) {
        snprintf(problem, sizeof problem,
                 "its offset %" PRIu64 " is not a multiple of the alignment %" PRIu32, where->off,
                 c->part->alignment);
        return cursor_fail(c, problem, CORRUPT);
    }
    where->size = 0;
    if (tensor->type_raw >= TDM_TYPE_LIMIT_) return TDM_OK;
    tensor->type = (tdm_type)tensor->type_raw;
    tdm_type_info info = tdm_type_get_info(tensor->type);
    if (info.name == NULL) return TDM_OK;
    if (tensor->ne[0] % info.block_len != 0) {
        snprintf(problem, sizeof problem,
                 "its rows of %" PRId64 " elements are not whole blocks of %" PRId32 " (type %s)",
                 tensor->ne[0], info.block_len, info.name);
        return cursor_fail(c, problem, CORRUPT);
    }
    if (__builtin_mul_overflow(n_elements / info.block_len, info.block_size, &tensor->size)) {
        tensor->size = 0;
        return cursor_fail(c, "has an impossible size", CORRUPT);
    }
    where->size = tensor->size;
    return TDM_OK;
}

/* Sets the data of every tensor, and checks that tensors lie inside the file and share no bytes.
 * Their data begins behind the descriptions, at the next multiple of the alignment. */
static tdm_status part_place_tensors(llm_gguf_part *part, cursor *c, extent *where) {
    const uint64_t mask = part->alignment - 1;
    const uint64_t data_start = (c->pos + mask) & ~mask;
    c->what = "tensor";
    for (uint32_t i = 0; i < part->n_tensors; ++i) {
        uint64_t start = 0, end = 0;
        c->name = part->tensors[i].name;
        /* A tensor of unknown type must have at least one byte. */
        const uint64_t size = where[i].size != 0 ? where[i].size : 1;
        if (__builtin_add_overflow(data_start, where[i].off, &start) ||
            __builtin_add_overflow(start, size, &end))
            return cursor_fail(c, "lies at an impossible offset", CORRUPT);
        if (end > part->size) {
            char problem[96];
            snprintf(problem, sizeof problem, "ends %" PRIu64 " bytes past the end of the file",
                     end - part->size);
            return cursor_fail(c, problem, "the file is truncated, download it again");
        }
        if (where[i].size != 0) part->tensors[i].data = part->base + start;
        where[i].size = size;
        where[i].tensor = i;
    }
    qsort(where, part->n_tensors, sizeof *where, extent_compare);
    for (uint32_t i = 1; i < part->n_tensors; ++i) {
        if (where[i].off - where[i - 1].off >= where[i - 1].size) continue;
        char problem[160];
        snprintf(problem, sizeof problem, "shares bytes with tensor '%.80s'",
                 part->tensors[where[i - 1].tensor].name);
        c->name = part->tensors[where[i].tensor].name;
        return cursor_fail(c, problem, CORRUPT);
    }
    return TDM_OK;
}

static tdm_status part_read_tensors(llm_gguf_part *part, cursor *c, uint64_t n, uint32_t number) {
    c->what = NULL;
    if (n > cursor_left(c) / TENSOR_SIZE_MIN) {
        char problem[96];
        snprintf(problem, sizeof problem, "%" PRIu64 " tensors do not fit into the file", n);
        return cursor_fail(c, problem, TRUNCATED_OR_BAD);
    }
    if (n == 0) return TDM_OK;
    part->tensors = calloc(n, sizeof *part->tensors);
    extent *where = calloc(n, sizeof *where);
    if (part->tensors == NULL || where == NULL) {
        free(where);
        return tdm_fail(c->err, TDM_RESOURCE_EXHAUSTED,
                        "%s: not enough memory for %" PRIu64 " tensor descriptions", part->shown,
                        n);
    }
    c->what = "tensor";
    tdm_status status = TDM_OK;
    for (uint64_t i = 0; i < n && status == TDM_OK; ++i) {
        c->number = i;
        status = cursor_read_tensor(c, &part->tensors[i], &where[i]);
        part->tensors[i].part = number;
    }
    part->n_tensors = (uint32_t)n;
    if (status == TDM_OK) status = part_place_tensors(part, c, where);
    free(where);
    return status;
}

/* Names a file that does not begin with "GGUF", for common mistakes with what to do. */
static tdm_status part_fail_magic(const llm_gguf_part *part, tdm_error *err) {
    static const struct {
        const char *start, *problem;
    } known[] = {
        {"version https://git-lfs", "is a Git LFS pointer, not the model itself; run git lfs pull"},
        {"<!", "is a web page, not a model; download the file itself"},
        {"<html", "is a web page, not a model; download the file itself"},
        {"PK\x03\x04", "is a zip or PyTorch file, not GGUF; convert it to GGUF first"},
        {"tjgg", "is in a format older than GGUF; convert it or download a GGUF version"},
        {"algg", "is in a format older than GGUF; convert it or download a GGUF version"},
        {"lmgg", "is in a format older than GGUF; convert it or download a GGUF version"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
        size_t len = strlen(known[i].start);
        if (part->size >= len && memcmp(part->base, known[i].start, len) == 0)
            return tdm_fail(err, TDM_DATA_LOSS, "%s: %s", part->shown, known[i].problem);
    }
    return tdm_fail(err, TDM_DATA_LOSS, "%s: is not a GGUF file; give the path of a .gguf file",
                    part->shown);
}

static tdm_status part_read(llm_gguf_part *part, uint32_t number, tdm_error *err) {
    cursor c = {.part = part, .err = err};
    uint32_t magic = 0;
    uint64_t n_tensors = 0, n_keys = 0;
    if (part->size >= sizeof magic) memcpy(&magic, part->base, sizeof magic);
    if (magic != LLM_GGUF_MAGIC) return part_fail_magic(part, err);
    if (part->size < HEADER_SIZE)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: has only %zu bytes; the file is truncated, download it again",
                        part->shown, part->size);
    memcpy(&part->version, part->base + 4, sizeof part->version);
    memcpy(&n_tensors, part->base + 8, sizeof n_tensors);
    memcpy(&n_keys, part->base + 16, sizeof n_keys);
    c.pos = HEADER_SIZE;
    if (part->version != 2 && part->version != 3) {
        const uint32_t swapped = __builtin_bswap32(part->version);
        if (swapped >= 1 && swapped <= 3)
            return tdm_fail(err, TDM_UNSUPPORTED,
                            "%s: is a big-endian GGUF file; get its little-endian version",
                            part->shown);
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: GGUF version %" PRIu32 " is not supported, only 2 and 3 are; get a "
                        "newer conversion of the model",
                        part->shown, part->version);
    }
    if (n_keys > cursor_left(&c) / KEY_SIZE_MIN) {
        char problem[96];
        snprintf(problem, sizeof problem, "%" PRIu64 " keys do not fit into the file", n_keys);
        return cursor_fail(&c, problem, TRUNCATED_OR_BAD);
    }
    if (n_keys > KEYS_MAX) {
        char problem[96];
        snprintf(problem, sizeof problem, "%" PRIu64 " keys are more than the limit of %u", n_keys,
                 KEYS_MAX);
        return cursor_fail(&c, problem, CORRUPT);
    }
    if (n_tensors > TENSORS_MAX) {
        char problem[96];
        snprintf(problem, sizeof problem, "%" PRIu64 " tensors are more than the limit of %u",
                 n_tensors, TENSORS_MAX);
        return cursor_fail(&c, problem, CORRUPT);
    }
    tdm_status status = part_read_keys(part, &c, n_keys);
    if (status == TDM_OK) status = part_read_alignment(part, err);
    if (status == TDM_OK) status = part_read_tensors(part, &c, n_tensors, number);
    return status;
}

static void part_show_path(llm_gguf_part *part, const char *path) {
    if (strlen(path) < sizeof part->shown) {
        snprintf(part->shown, sizeof part->shown, "%s", path);
    } else {
        const char *slash = strrchr(path, '/');
        const char *file = slash != NULL ? slash + 1 : path;
        snprintf(part->shown, sizeof part->shown, ".../%.160s", file);
    }
    for (char *p = part->shown; *p != '\0'; ++p)
        if ((unsigned char)*p < 0x20) *p = '?';
}

tdm_status llm_gguf_part_open(llm_gguf_part *part, const char *path, uint32_t number,
                              tdm_error *err) {
    part_show_path(part, path);
    /* O_NONBLOCK: opening a FIFO by mistake must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int reason = errno;
        return tdm_fail(err, reason == ENOENT || reason == ENOTDIR ? TDM_NOT_FOUND : TDM_IO,
                        "%s: cannot open: %s; check the path and its permissions", part->shown,
                        strerror(reason));
    }
    struct stat info;
    tdm_status status = TDM_OK;
    if (fstat(fd, &info) != 0)
        status =
            tdm_fail(err, TDM_IO, "%s: cannot read its size: %s", part->shown, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = tdm_fail(err, TDM_IO, "%s: is not a regular file; give the path of a .gguf file",
                          part->shown);
    else if (info.st_size == 0)
        status = tdm_fail(err, TDM_DATA_LOSS, "%s: is empty; download it again", part->shown);
    else if ((uint64_t)info.st_size > SIZE_MAX / 2)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                          "%s: is too large for this machine's address space", part->shown);
    if (status == TDM_OK) {
        void *base = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) {
            status = tdm_fail(err, errno == ENOMEM ? TDM_RESOURCE_EXHAUSTED : TDM_IO,
                              "%s: cannot map: %s", part->shown, strerror(errno));
        } else {
            part->base = base;
            part->size = (size_t)info.st_size;
            part->fd = fd;
            status = part_read(part, number, err);
        }
    }
    if (part->base == NULL) close(fd);
    if (status != TDM_OK) {
        char shown[sizeof part->shown];
        memcpy(shown, part->shown, sizeof shown);
        llm_gguf_part_close(part);
        memcpy(part->shown, shown, sizeof shown);
    }
    return status;
}

void llm_gguf_part_close(llm_gguf_part *part) {
    for (uint32_t i = 0; i < part->n_keys; ++i) free((void *)part->keys[i].array.string_off);
    free(part->keys);
    free(part->key_index);
    free(part->tensors);
    while (part->names != NULL) {
        llm_gguf_names *next = part->names->next;
        free(part->names);
        part->names = next;
    }
    if (part->base != NULL) {
        munmap((void *)part->base, part->size);
        close(part->fd);
    }
    memset(part, 0, sizeof *part);
}
