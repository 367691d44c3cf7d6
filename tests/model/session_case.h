/* SPDX-License-Identifier: MIT
 *
 * session_case.h: a random session: a tiny model, two sets of devices, a context and a list of
 * operations on its sequences, all chosen from one seed. It runs nothing (session_run.h).
 */
#ifndef TANDEM_TESTS_SESSION_CASE_H
#define TANDEM_TESTS_SESSION_CASE_H

#include "llm/context.h"
#include "tests/model/arch_scene.h"

enum {
    SESSION_MAX_OP = 48,
    SESSION_MAX_SEQ = 4,
    SESSION_MAX_MEMBER = 4,
    SESSION_N_FILE = 2,
    SESSION_MAX_ADAPTER = 2,
    SESSION_MAX_CTX = 500
};

/* What a device is. */
typedef enum session_device {
    SESSION_CPU,
    SESSION_AWAY,    /* plugin "fault": memory of its own, no host addresses */
    SESSION_READER,  /* the same, and reads caches in the host's memory */
    SESSION_CARD,    /* plugin "discrete": waits in its kernels */
    SESSION_PHASES,  /* the same, but its kernels may not wait */
    SESSION_PLAIN,   /* the same without exchanges */
    SESSION_NESTED,  /* a group of two CPU devices */
    SESSION_STACKED, /* a group of one that is away and a CPU device */
    SESSION_CUDA,    /* emulated */
    SESSION_HIP,     /* emulated */
    SESSION_VULKAN,
    SESSION_N_DEVICE
} session_device;

/* A set of devices: one device, or a group of them. */
typedef struct session_place {
    int n_member;
    session_device members[SESSION_MAX_MEMBER];
    /* One more option of each member's device; key NULL = none. */
    tdm_option options[SESSION_MAX_MEMBER];
    bool is_group;   /* else the first member alone */
    bool has_cpu;    /* the model's second device is a CPU, as in the program */
    bool has_own_cards; /* CUDA devices are different cards, as exchanges in peer memory need */
    bool imports;    /* cards and devices that are away read the host's memory */
    char shares[32]; /* "3,1", or "auto" */
    const char *split, *attention, *experts, *check, *exchange_memory, *reduce_type;
} session_place;

typedef enum session_op_kind {
    SESSION_DECODE,    /* one sequence */
    SESSION_TOGETHER,  /* several sequences in a batch */
    SESSION_TRUNCATE,  /* to any length */
    SESSION_TAKE_BACK, /* a few tokens */
    SESSION_EMPTY,
    SESSION_FORK,
    SESSION_SHIFT,
    SESSION_SAVE,
    SESSION_LOAD,
    SESSION_LOAD_PREFIX,
    SESSION_MOVE,       /* all sequences into a context on the other set of devices, as files */
    SESSION_CANDIDATES, /* the best tokens instead of whole rows, or whole rows again */
    SESSION_CANCEL,     /* a call that is cancelled after its first ubatch */
    SESSION_WRONG,      /* a call that is refused */
    SESSION_OTHER,      /* a batch in a second context of the model */
    SESSION_BESIDE,     /* batches in both contexts at the same time */
    SESSION_SCALES,     /* of a sequence's adapters */
    SESSION_FAIL,       /* a computation of a member fails, or one of its allocations */
    SESSION_LOSE,       /* a card is lost, for good */
    SESSION_N_OP
} session_op_kind;

/* Random numbers, which are taken modulo what is possible when the operation runs. So any part of a
 * list of operations is a list. */
typedef struct session_op {
    session_op_kind kind;
    uint32_t a, b, c, d;
} session_op;

typedef struct session_case {
    uint64_t seed;
    char model[48];
    bool is_preset;   /* else a fixture of archs.txt */
    bool is_form_refused; /* a fixture of a form that is not supported */
    tdm_type weights; /* of a preset; a fixture's are f32 */
    const char
        *quantized;   /* what a fixture is quantised to (llm/quantize/quantize.h); NULL = not */
    const char *path; /* of CPU devices: "reference" or "fast" */
    session_place places[2];
    int n_ctx, n_ubatch, n_seq, page_len[2];
    tdm_type type_k, type_v;
    bool is_unrotated, is_window_whole, is_cache_in_host, has_all_logits, gives_hidden;
    bool has_layer_types; /* types of the cache differ between layers, and so does rotation */
    bool is_placed;       /* layers are on the model's first or second device, where it has two */
    int n_adapter;
    bool is_spoiled; /* the devices get another token than the CPU: the case must fail */
    int n_op;
    session_op ops[SESSION_MAX_OP];
} session_case;

/* What a campaign chooses among; all zero = CPU devices, those that are away, and cards. */
typedef struct session_choice {
    bool has_cuda, has_hip, has_vulkan; /* every case has such a device */
    bool is_rough;                      /* more devices that refuse ops, and caches beside them */
    const char *model;                  /* NULL = any */
} session_choice;

void session_case_make(session_case *c, const arch_scene *scene, const session_choice *choice,
                       uint64_t seed);
/* Keeps those operations whose bit is set. */
void session_case_keep(session_case *c, uint64_t mask);
void session_case_print(const session_case *c);
const char *session_place_words(const session_place *p);
const char *session_op_name(session_op_kind kind);
/* Types and rotation of the cache of a layer, where has_layer_types. */
llm_layer_types session_case_layer(const session_case *c, int layer);

#endif
