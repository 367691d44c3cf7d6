/* SPDX-License-Identifier: MIT
 *
 * fit.h: makes a context fit the free memory, before any memory is allocated.
 */
#ifndef TANDEM_RUNNER_FIT_H
#define TANDEM_RUNNER_FIT_H

#include "runner/plan/plan.h"

/* Checks that the model, and the context of *wish and the configuration, fit the session's device
 * (every member of a group) and leave its reserve free. If they do not fit, it reduces the step,
 * then the context, until they do: the step only if neither *wish nor the configuration sets
 * ubatch-size, the context only if *wish has no n_ctx and ctx-size is auto. Then *wish receives
 * these sizes, and a note is printed. If nothing fits, TDM_RESOURCE_EXHAUSTED names the member and
 * says what to do. Call it after runner_session_pick and before runner_session_load. [setup] */
tdm_status runner_fit(runner_session *session, runner_context_wish *wish, tdm_error *err);

#endif
