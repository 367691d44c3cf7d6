/* SPDX-License-Identifier: MIT
 *
 * prompt_cache.c: see prompt_cache.h.
 */
#include "runner/prompt_cache.h"

#include <sys/stat.h>

#include "llm/cache/state.h"
#include "runner/output_file.h"

tdm_status runner_prompt_cache_check(const char *path, tdm_error *err) {
    struct stat info;
    runner_output_file file;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: a prompt cache must be a regular file",
                        path);
    tdm_status status = runner_output_open(&file, path, err);
    /* With a status other than TDM_OK, closing removes the temporary file and leaves `path`
     * alone. */
    if (status == TDM_OK) runner_output_close(&file, TDM_CANCELLED, NULL);
    return status;
}

tdm_status runner_prompt_cache_load(runner_session *session, const char *path,
                                    const int32_t *prompt, int32_t n_prompt, tdm_error *err) {
    struct stat info;
    int32_t n_reused = 0;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: a prompt cache must be a regular file",
                        path);
    tdm_status status =
        llm_state_load_prefix(session->ctx, 0, path, prompt, n_prompt - 1, &n_reused, err);
    return status == TDM_NOT_FOUND ? TDM_OK : status;
}

tdm_status runner_prompt_cache_save(runner_session *session, const char *path,
                                    const int32_t *tokens, int32_t n_tok, tdm_error *err) {
    tdm_status status = llm_state_save(session->ctx, 0, tokens, n_tok, path, err);
    if (status == TDM_OK)
        runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_NOTE,
                              "cache       %d tokens saved in %s", n_tok, path);
    return status;
}
