/* SPDX-License-Identifier: MIT
 *
 * fit.h: makes a context fit the free memory, before any is allocated.
 */
#ifndef TANDEM_RUNNER_FIT_H
#define TANDEM_RUNNER_FIT_H

#include "runner/plan/plan.h"

/* Checks that the model, and the context of *wish and the configuration, fit the session's device
 * (every member of a group) and leave its reserve free. Where they do not, and ctx-size is auto or
 * ubatch-size is not set, *wish receives the largest sizes that fit, and a note is printed.
 * Otherwise TDM_RESOURCE_EXHAUSTED names the member and says what to do. Call after
 * runner_session_pick and before runner_session_load. [setup] */
tdm_status runner_fit(runner_session *session, runner_context_wish *wish, tdm_error *err);

#endif
