/* SPDX-License-Identifier: MIT
 *
 * options.c: the options of CUDA and HIP devices: their table for users, and their parsing.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/rt/rt.h"

static const char *const exchanges[] = {[RT_EXCHANGE_AUTO] = "auto",
                                        [RT_EXCHANGE_PLAN] = "plan",
                                        [RT_EXCHANGE_PHASES] = "phases",
                                        NULL};

static const tdm_option_desc descs[] = {
    {.name = "driver",
     .help = "library to use as the driver instead of the system's, such as the emulated driver of "
             "tests",
     .value_name = "PATH",
     .kind = TDM_OPTION_PATH},
    {.name = "graphs",
     .help = "computations are captured as graphs of the driver; `no` launches kernels one by one",
     .default_value = "yes",
     .kind = TDM_OPTION_BOOL},
    {.name = "exchange",
     .help =
         "how members of a group exchange: kernels that wait for each other inside a computation "
         "(plan), or a computation for each part between two exchanges (phases). `auto` is plan "
         "where a test at open shows that the device can",
     .default_value = "auto",
     .words = exchanges,
     .kind = TDM_OPTION_WORD},
    {.name = "max-buffer",
     .help =
         "bytes of the largest buffer that the device makes, such as 2G, for tests; 0 = no limit",
     .default_value = "0",
     .kind = TDM_OPTION_SIZE,
     .max = 9007199254740992.0},
    {.name = "fusion",
     .help = "several operations are computed by one kernel where that gives the same results",
     .default_value = "yes",
     .kind = TDM_OPTION_BOOL},
    {.name = "matrix",
     .help = "prompts are computed on matrix hardware, where the device has it: x, K and V are "
             "rounded to f16",
     .default_value = "yes",
     .kind = TDM_OPTION_BOOL},
    {.name = "launch-early",
     .help = "a kernel starts while the one before it ends, and prefetches weights until then; "
             "NVIDIA's devices from compute capability 9.0 on, with graphs",
     .default_value = "no",
     .kind = TDM_OPTION_BOOL},
};

const tdm_option_table rt_option_table = {
    .struct_size = sizeof(tdm_option_table),
    .desc_size = sizeof(tdm_option_desc),
    .descs = descs,
    .n_desc = sizeof descs / sizeof descs[0],
};

const char *rt_options_driver(const tdm_option *options, int32_t n_option) {
    for (int32_t i = 0; i < n_option; i++)
        if (strcmp(options[i].key, "driver") == 0) return options[i].value;
    return NULL;
}

static tdm_status exchange_parse(const char *value, rt_exchange *exchange_out, tdm_error *err) {
    for (int i = 0; exchanges[i] != NULL; i++)
        if (strcmp(value, exchanges[i]) == 0) {
            *exchange_out = (rt_exchange)i;
            return TDM_OK;
        }
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "exchange = %s: use auto, plan or phases", value);
}

tdm_status rt_options_parse(const tdm_option *options, int32_t n_option, rt_options *options_out,
                            tdm_error *err) {
    rt_options o = {.has_fusion = true, .has_graphs = true, .has_matrix = true};
    o.driver = rt_options_driver(options, n_option);
    for (int32_t i = 0; i < n_option; i++) {
        const char *key = options[i].key;
        const char *value = options[i].value != NULL ? options[i].value : "";
        bool *flag = strcmp(key, "graphs") == 0         ? &o.has_graphs
                     : strcmp(key, "fusion") == 0       ? &o.has_fusion
                     : strcmp(key, "matrix") == 0       ? &o.has_matrix
                     : strcmp(key, "launch-early") == 0 ? &o.is_early
                                                        : NULL;
        if (flag != NULL) {
            *flag = strcmp(value, "yes") == 0;
            if (!*flag && strcmp(value, "no") != 0)
                return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s = %s: use yes or no", key, value);
        } else if (strcmp(key, "exchange") == 0) {
            tdm_status status = exchange_parse(value, &o.exchange, err);
            if (status != TDM_OK) return status;
        } else if (strcmp(key, "max-buffer") == 0) {
            char *end;
            o.max_buffer = strtoull(value, &end, 10);
            if (value[0] < '0' || value[0] > '9' || *end != '\0')
                return tdm_fail(err, TDM_INVALID_ARGUMENT, "max-buffer = %s: use a number of bytes",
                                value);
        } else if (strcmp(key, "driver") != 0) {
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "%s: not an option of a %s device; it has driver, graphs, exchange, "
                            "max-buffer, fusion, matrix and launch-early",
                            key, rt_vendor_this.plugin);
        }
    }
    *options_out = o;
    return TDM_OK;
}
