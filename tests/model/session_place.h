/* SPDX-License-Identifier: MIT
 *
 * session_place.h: opens the devices of a random session (session_case.h), in a runtime of their
 * own, and makes their computations and allocations fail.
 */
#ifndef TANDEM_TESTS_SESSION_PLACE_H
#define TANDEM_TESTS_SESSION_PLACE_H

#include "core/runtime.h"
#include "tests/model/session_case.h"

/* Paths of the emulated drivers of CUDA and HIP; main sets them. */
extern const char *session_cuda_driver, *session_hip_driver;

typedef struct session_rig {
    const session_place *place;
    tdm_runtime *rt;
    tdm_open_device *devs[2];
    int n_dev;
    int64_t memory[SESSION_MAX_MEMBER]; /* bytes in use of each card without a model */
} session_rig;

/* Opens the devices. `path` is that of CPU devices. On failure the rig is closed. */
tdm_status session_open(const session_place *place, const char *path, session_rig *rig,
                        tdm_error *err);
/* Closes them. Fails the running test where a card still has something of the session. */
void session_close(session_rig *rig);
/* Fails the running test where a card has more memory in use than before a model was loaded. */
void session_memory_check(const session_rig *rig);

/* Arms a failure of member `which` of those that can fail: of its n-th computation, allocation or
 * plan from now on, as `failure` says. False where no member can. */
bool session_fail(const session_rig *rig, uint32_t which, uint32_t failure, int64_t n);
/* Whether the error is that of such a failure. */
bool session_is_failure(const tdm_error *err);
/* Whether the error is that of a card with little memory or small buffers: any call that needs more
 * may fail. */
bool session_is_limit(const tdm_error *err);
/* Loses a card at its n-th call from now on. False where there is no card. */
bool session_lose(const session_rig *rig, uint32_t which, int64_t n);
/* Whether the error is that of a lost card. */
bool session_is_loss(const tdm_error *err);
/* Disarms all failures. */
void session_heal(const session_rig *rig);

#endif
