/* SPDX-License-Identifier: MIT
 *
 * fit.h: makes a context fit the memory that is free, before any of it is taken.
 */
#ifndef TANDEM_RUNNER_FIT_H
#define TANDEM_RUNNER_FIT_H

#include "runner/plan/plan.h"

/* Checks that model and context as the wish and the configuration ask for fit the session's device
 * (every member of a group), each with its reserve. Where they do not, and ctx-size is auto or
 * ubatch-size nobody's choice, *wish gets the largest that do, and a note says so; else
 * TDM_RESOURCE_EXHAUSTED names the member and what to do. After runner_session_pick, before
 * runner_session_load. [setup] */
tdm_status runner_fit(runner_session *session, runner_context_wish *wish, tdm_error *err);

#endif
