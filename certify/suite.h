/* SPDX-License-Identifier: MIT
 *
 * suite.h: what all checks of the conformance suite use: the row of a check, the state of a running
 * check, and functions to load the plugin, open the device and report. Internal to certify/.
 *
 * A check is a function that returns a verdict. It runs in a child process that ends after it
 * fails, so a failing path need not free anything. In a batch, checks of a table that `shares`
 * follow each other on one open device: what a passing check leaves must not disturb the next.
 * Checks that test releasing free everything themselves.
 */
#ifndef TANDEM_CERTIFY_SUITE_H
#define TANDEM_CERTIFY_SUITE_H

#include "certify/certify.h"
#include "certify/host.h"
#include "tandem/plugin.h"

typedef enum certify_verdict {
    CERTIFY_PASSED = 0,
    CERTIFY_FAILED,
    CERTIFY_SKIPPED /* the plugin lacks the feature, or this machine cannot test it */
} certify_verdict;

typedef struct certify {
    const certify_params *params;
    char message[TDM_ERROR_MESSAGE_SIZE]; /* of a failure or a skip */
    uint64_t random;                      /* state of certify_random */
    certify_host host;
    void *object; /* of dlopen */
    const tdm_plugin *plugin;
    tdm_instance *instance;
    tdm_device *device;
    uint64_t align;    /* of binding offsets; set by certify_open */
    tdm_error failure; /* the last refusal of supports_op, for messages */
    tdm_device_params options; /* filled and returned by certify_options */
} certify;

typedef struct certify_check {
    const char *id;
    int level;
    const char *cites; /* header: "sentence" */
    certify_verdict (*run)(certify *c);
} certify_check;

/* The checks of a family: `checks`, then those that `more` points to; NULL entries are ignored. */
typedef struct certify_table {
    const certify_check *checks;
    size_t n_check;
    const certify_check *const *more;
    size_t n_more;
    bool shares; /* no check depends on a fresh process, or closes the device */
} certify_table;

#define CERTIFY_TABLE(array)                                                                       \
    { array, sizeof(array) / sizeof((array)[0]), NULL, 0, false }
#define CERTIFY_SHARED_TABLE(array)                                                                \
    { array, sizeof(array) / sizeof((array)[0]), NULL, 0, true }

extern const certify_table certify_plugin_table;
extern const certify_table certify_option_table;
extern const certify_table certify_device_table;
extern const certify_table certify_status_table;
extern const certify_table certify_buffer_table;
extern const certify_table certify_memory_table;
extern const certify_table certify_tensor_table;
extern const certify_table certify_graph_table;
extern const certify_table certify_op_table;
extern const certify_table certify_queue_table;
extern const certify_table certify_order_table;
extern const certify_table certify_attach_table;
extern const certify_table certify_cache_table;
extern const certify_table certify_recurrent_table;
extern const certify_table certify_sparse_table;
extern const certify_table certify_pool_table;
extern const certify_table certify_strided_table;
extern const certify_table certify_split_table;
extern const certify_table certify_exchange_table;
extern const certify_table certify_exchange_phase_table;

/* Sets the message and returns the verdict, so that a failing path is one line. */
TDM_PRINTF(2, 3)
certify_verdict certify_fail(certify *c, const char *format, ...);
TDM_PRINTF(2, 3)
certify_verdict certify_skip(certify *c, const char *format, ...);

/* Puts words and a colon before the message of a failure or skip. Returns the verdict. */
TDM_PRINTF(3, 4)
certify_verdict certify_prefix(certify *c, certify_verdict verdict, const char *format, ...);

/* Loads the plugin and calls entry and init with c->host. A failure is a skip: the checks
 * plugin.load and device.open report it, so that one defect fails one check. In a batch the plugin
 * and the device of the check before are used. */
certify_verdict certify_load(certify *c);
/* The same, and opens the device with the options of the command line. */
certify_verdict certify_open(certify *c);
/* Opens another device of the loaded plugin, on the given instance. */
certify_verdict certify_open_on(certify *c, tdm_instance *instance, tdm_device **device_out);
/* Opens the next device of the plugin; the same one again where it has no other. */
certify_verdict certify_open_next(certify *c, tdm_device **device_out);
/* What the open device is: get_info, or describe where that slot is absent. *info_out has its
 * struct_size. */
tdm_status certify_device_info(certify *c, tdm_device_info *info_out, tdm_error *err);
/* import_align of the open device; 64 where it is 0 or unknown. */
uint64_t certify_import_align(certify *c);
/* Undoes certify_open and certify_load: close, deinit, dlclose. */
void certify_close(certify *c);

/* The options of the command line, for count and describe. The struct is c's. */
const tdm_device_params *certify_options(certify *c);

/* dlopen and the entry's address alone, without calling it. */
certify_verdict certify_object_open(certify *c, void **object_out, tdm_plugin_entry_fn *entry_out);

/* Checks the status of a call that must fail: PASSED where it is `want`. `what` begins the
 * message. */
certify_verdict certify_expect(certify *c, const char *what, tdm_status status, tdm_status want);

/* 64 random bits; a number in lo .. hi. Both follow from the printed seed. */
uint64_t certify_random(certify *c);
int64_t certify_random_in(certify *c, int64_t lo, int64_t hi);
void certify_random_bytes(certify *c, void *bytes, size_t size);

/* Number of threads of this process, the caller included; 0 = unknown. */
int certify_thread_count(void);
/* Waits until there are at most `n` threads, for up to two seconds: the system removes a joined
 * thread from its list a moment later. */
bool certify_threads_settle(int n);

/* Allocates a buffer of `size` bytes; the verdict has the message of a failure. */
certify_verdict certify_alloc(certify *c, uint64_t size, tdm_buffer **buffer_out);

#endif
