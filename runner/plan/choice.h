/* SPDX-License-Identifier: MIT
 *
 * choice.h: `device = auto`: chooses the device, or the group, that runs a model.
 */
#ifndef TANDEM_RUNNER_CHOICE_H
#define TANDEM_RUNNER_CHOICE_H

#include "runner/plan/plan.h"

/* Chooses and opens a device: one device where the model fits it and the plan predicts no higher
 * speed for a group, else a group of all devices with automatic shares. The candidates are the
 * sections of the file; without any, the devices of the plugins. Prints one line with the choice
 * and its reason where there was a choice. Needs only session->roster and the runtime. Fills
 * session->section and session->dev. [setup] */
tdm_status runner_choose(runner_session *session, tdm_error *err);

#endif
