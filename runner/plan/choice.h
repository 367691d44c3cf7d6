/* SPDX-License-Identifier: MIT
 *
 * choice.h: `device = auto`: which of the devices that there are a model is to run on.
 */
#ifndef TANDEM_RUNNER_CHOICE_H
#define TANDEM_RUNNER_CHOICE_H

#include "runner/plan/plan.h"

/* Opens what suits the session's model best, with the roster and runtime ready and nothing else:
 * one device where the model fits it and a group would not be faster by the plan's prediction, else
 * a group of all with automatic shares. The devices are the file's sections, else what the plugins
 * have. Says in one line what was chosen and why where there was a choice. Fills session->section
 * and session->dev. [setup] */
tdm_status runner_choose(runner_session *session, tdm_error *err);

#endif
