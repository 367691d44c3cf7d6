/* SPDX-License-Identifier: MIT
 *
 * fit.c: see fit.h. Searches the sizes; plan.c computes the memory that each of them needs.
 */
#include "runner/plan/fit.h"

#define CTX_LEAST    256 /* tokens; no smaller context is chosen */
#define CTX_STEP     256 /* tokens; a reduced context is a multiple of it */
#define UBATCH_LEAST 64  /* tokens; less saves little memory and makes prompts slow */

/* Plans with these sizes. That a group with automatic shares fails with TDM_RESOURCE_EXHAUSTED,
 * because no shares fit, is a result like any other: *fits_out is false then. */
static tdm_status size_try(runner_session *session, runner_context_wish wish, int32_t n_ctx,
                           int32_t n_ubatch, bool *fits_out, runner_plan *plan, tdm_error *err) {
    wish.n_ctx = n_ctx;
    wish.n_ubatch = n_ubatch;
    runner_plan_clear(plan);
    tdm_status status = runner_plan_make(session, &wish, false, plan, err);
    *fits_out = status == TDM_OK && plan->fits;
    return status == TDM_RESOURCE_EXHAUSTED ? TDM_OK : status;
}

/* Reduces *n_ctx to a multiple of CTX_STEP that fits; 0 = none does. A larger context needs more
 * memory, so bisection finds the largest one. */
static tdm_status context_shrink(runner_session *session, const runner_context_wish *wish,
                                 int32_t n_ubatch, int32_t *n_ctx, runner_plan *plan,
                                 tdm_error *err) {
    int32_t fits_at = 0, fails_at = (*n_ctx + CTX_STEP - 1) / CTX_STEP; /* in steps */
    tdm_status status = TDM_OK;
    while (status == TDM_OK && fails_at - fits_at > 1) {
        int32_t middle = fits_at + (fails_at - fits_at) / 2;
        bool fits = false;
        status = size_try(session, *wish, middle * CTX_STEP, n_ubatch, &fits, plan, err);
        *(fits ? &fits_at : &fails_at) = middle;
    }
    /* A sixteenth less, because other programs may take memory before it is allocated. */
    int32_t slack = (fits_at + 15) / 16;
    *n_ctx = (fits_at > slack ? fits_at - slack : fits_at) * CTX_STEP;
    return status;
}

static void tell(runner_session *session, const runner_plan *fitting, int32_t n_ctx,
                 int32_t n_ubatch) {
    char ctx[64] = "", ubatch[64] = "";
    if (fitting->n_ctx != n_ctx)
        snprintf(ctx, sizeof ctx, "ctx-size %d instead of %d", (int)fitting->n_ctx, (int)n_ctx);
    if (fitting->n_ubatch != n_ubatch)
        snprintf(ubatch, sizeof ubatch, "%subatch-size %d instead of %d",
                 ctx[0] != '\0' ? " and " : "", (int)fitting->n_ubatch, (int)n_ubatch);
    runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_NOTE,
                          "%s%s, so that it fits the free memory of '%s'", ctx, ubatch,
                          tdm_open_device_name(session->dev));
}

/* Searches for sizes that fit, from the configured ones downwards; *fits_out = there are some. */
static tdm_status sizes_find(runner_session *session, const runner_context_wish *wish,
                             int32_t n_ctx, int32_t n_ubatch, bool ubatch_is_free, bool *fits_out,
                             runner_plan *plan, tdm_error *err) {
    runner_config *config = session->app->config;
    bool ctx_is_free = wish->n_ctx == 0 && runner_config_is_auto(config, "ctx-size");
    tdm_status status = TDM_OK;
    *fits_out = false;
    /* The step is reduced first, because that only makes long prompts slower, while a smaller
     * context holds less text. */
    while (status == TDM_OK && !*fits_out && ubatch_is_free && n_ubatch / 2 >= UBATCH_LEAST)
        status = size_try(session, *wish, n_ctx, n_ubatch /= 2, fits_out, plan, err);
    if (status != TDM_OK || *fits_out || !ctx_is_free || n_ctx <= CTX_LEAST) return status;
    status = context_shrink(session, wish, n_ubatch, &n_ctx, plan, err);
    if (status != TDM_OK || n_ctx == 0) return status;
    return size_try(session, *wish, n_ctx, n_ubatch, fits_out, plan, err);
}

tdm_status runner_fit(runner_session *session, runner_context_wish *wish, tdm_error *err) {
    runner_config *config = session->app->config;
    bool ubatch_is_free =
        wish->n_ubatch == 0 &&
        runner_config_get_origin(config, "ubatch-size").level == RUNNER_LEVEL_BUILT_IN;
    runner_plan asked = {0}, plan = {0};
    tdm_error why = {0}, ignored;
    bool fits = false;
    tdm_status status = runner_plan_make(session, wish, false, &asked, &why);
    if (status == TDM_OK) status = runner_plan_check(&asked, &why);
    runner_plan_clear(&asked);
    if (status != TDM_RESOURCE_EXHAUSTED)
        return status == TDM_OK ? TDM_OK : tdm_fail(err, status, "%s", why.message);
    runner_context_request request;
    if (runner_session_context(session, wish, &request, &ignored) != TDM_OK)
        return tdm_fail(err, status, "%s", why.message);
    int32_t n_ctx = runner_plan_context_size(session, &request.params);
    int32_t n_ubatch = request.params.n_ubatch < n_ctx ? request.params.n_ubatch : n_ctx;
    if (sizes_find(session, wish, n_ctx, n_ubatch, ubatch_is_free, &fits, &plan, &ignored) !=
            TDM_OK ||
        !fits) {
        runner_plan_clear(&plan);
        return tdm_fail(err, status, "%s", why.message);
    }
    tell(session, &plan, n_ctx, n_ubatch);
    if (plan.n_ctx != n_ctx) wish->n_ctx = plan.n_ctx;
    wish->n_ubatch = plan.n_ubatch;
    runner_plan_clear(&plan);
    return TDM_OK;
}
