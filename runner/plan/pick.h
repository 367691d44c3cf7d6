/* SPDX-License-Identifier: MIT
 *
 * pick.h: opens the device that a session runs on: the configured one, the one that `device = auto`
 * chooses (choice.h), or the CPU with `gpu-layers = 0`.
 */
#ifndef TANDEM_RUNNER_PICK_H
#define TANDEM_RUNNER_PICK_H

#include "runner/session.h"

/* Makes the runtime of an opened session, and opens its device or group, the devices of its
 * placement and its fallback. `device` is a value of the key `device`, NULL = the configured one;
 * `threads` is the number for CPU devices, 0 = as configured. [setup] */
tdm_status runner_session_pick(runner_session *session, const char *device, int32_t threads,
                               tdm_error *err);

#endif
