/* SPDX-License-Identifier: MIT
 *
 * choice.h: `device = auto`: chooses the device or group that runs a model fastest.
 */
#ifndef TANDEM_RUNNER_CHOICE_H
#define TANDEM_RUNNER_CHOICE_H

#include "runner/plan/plan.h"

/* Chooses and opens a device for the opened model: one device if the model fits it and the plan
 * predicts no higher speed for a group, else a group of all devices with automatic shares. The
 * candidates are the [device NAME] sections of the file or, if there are none, the devices of the
 * plugins. If there are several, a note states the choice and its reason. Needs session->model,
 * ->rt and ->roster; fills session->section and session->dev. [setup] */
tdm_status runner_choose(runner_session *session, tdm_error *err);

#endif
