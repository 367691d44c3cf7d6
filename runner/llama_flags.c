/* SPDX-License-Identifier: MIT
 *
 * llama_flags.c: see llama_flags.h. The other flags of llama.cpp are keys like any other.
 */
#include "runner/llama_flags.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Keys without effect, and what happens instead. */
static const struct {
    const char *key, *instead;
} notes[] = {
    {"mmap", "weights are copied into the memory of their devices; the file is not read in place"},
    {"flash-attn", "attention is always computed without a matrix of scores in memory"},
    {"main-gpu", "--device names what to run on; `tandem devices` lists what there is"},
    {"jinja", "`tandem chat` always reads its template as Jinja, and `tandem run` applies none"},
    {"prompt-cache-all", "--prompt-cache always saves the prompt and the generated text"},
    {"conversation", "`tandem run` continues a text; `tandem chat` holds a conversation"},
    {"warmup", "only `tandem bench` has a warm-up run"},
};

static bool is_given(runner_app *app, const char *key) {
    return runner_config_get_origin(app->config, key).level != RUNNER_LEVEL_BUILT_IN;
}

void runner_key_note(runner_app *app, const char *key, const char *instead) {
    char where[320];
    runner_origin origin = runner_config_get_origin(app->config, key);
    runner_origin_format(origin, where, sizeof where);
    if (origin.flag != NULL)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE, "%s has no effect: %s",
                              origin.flag, instead);
    else
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE, "%s: '%s' has no effect: %s",
                              where, key, instead);
}

void runner_llama_flags_note(runner_app *app) {
    const runner_command *command = app->command;
    const runner_key_list *keys = runner_config_keys(app->config);
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        const runner_key *key = runner_key_find(keys, notes[i].key, command);
        if (runner_command_takes(command, key) && (key->sections & RUNNER_IN_DEFAULTS) != 0 &&
            is_given(app, notes[i].key))
            runner_key_note(app, notes[i].key, notes[i].instead);
    }
    const runner_key *layers = runner_key_find(keys, "gpu-layers", command);
    if (runner_command_takes(command, layers) && is_given(app, "gpu-layers") &&
        !runner_wants_cpu(app))
        runner_key_note(
            app, "gpu-layers",
            "all layers run on what --device names; -ot and -ncmoe keep tensors elsewhere");
}

bool runner_wants_cpu(runner_app *app) {
    return runner_config_get_int(app->config, "gpu-layers") == 0;
}

static tdm_status lock_failed(const char *call, uint64_t size, tdm_error *err) {
    int reason = errno;
    struct rlimit limit = {0};
    char limit_text[32] = "unlimited", size_text[32];
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        runner_bytes_format(limit.rlim_cur, limit_text, sizeof limit_text);
    runner_bytes_format(size, size_text, sizeof size_text);
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                    "--mlock: %s of weights cannot be locked: %s: %s; the limit RLIMIT_MEMLOCK is "
                    "%s: raise it (`ulimit -l unlimited`) or leave out --mlock",
                    size_text, call, strerror(reason), limit_text);
}

tdm_status runner_weights_lock(runner_app *app, llm_model *model, tdm_error *err) {
    if (!runner_config_get_bool(app->config, "mlock")) return TDM_OK;
    for (int32_t i = 0; i < model->store.n_mem; i++) {
        const tdm_mem *mem = &model->store.mems[i];
        if (mem->dev == NULL || mem->size == 0) continue;
        void *data = tdm_mem_host_pointer(mem, TDM_ACCESS_READ);
        if (data != NULL && mlock(data, (size_t)mem->size) != 0)
            return lock_failed("mlock", mem->size, err);
        /* A group's weights lie in buffers of its members, whose addresses are not known here: all
         * mappings are locked. With MCL_ONFAULT this reads in no pages that are not in memory
         * yet. */
        if (data == NULL && tdm_open_device_is_group(mem->dev) &&
            mlockall(MCL_CURRENT | MCL_ONFAULT) != 0)
            return lock_failed("mlockall", mem->size, err);
        if (data == NULL && !tdm_open_device_is_group(mem->dev))
            runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE,
                                  "--mlock has no effect on '%s': its memory is not the host's",
                                  tdm_open_device_name(mem->dev));
    }
    return TDM_OK;
}
