/* SPDX-License-Identifier: MIT
 *
 * links.h: what a submission and an exchange cost a member besides its nodes and bytes. The
 * predictions (predict.h) and share = auto (solve.h) use it.
 */
#ifndef TANDEM_META_LINKS_H
#define TANDEM_META_LINKS_H

#include "plugins/meta/meta.h"

/* Sets submit_seconds, crossing_seconds and link_rate of the active members: measures a submission
 * of each, and an exchange of each pair of members that exchange in their plans. A member keeps the
 * slowest of its pairs. Where measuring fails, a default stands for the cost, and a warning names
 * the members; only a lost device is an error. The devices are claimed (claims.h). Under
 * device->mutex.
 *
 * For tests: the environment variable TANDEM_TEST_LINKS gives them. It has a pair SUBMIT,CROSSING
 * in seconds for each member, separated by spaces. The last pair is for all further members. With
 * "measure" links are measured also where TANDEM_TEST_RATES gives the rates. */
tdm_status meta_links_find(meta_device *device, tdm_error *err);
/* The measuring itself. links_measure.c. */
tdm_status meta_links_measure(meta_device *device, tdm_error *err);
/* Measures the same exchanges between all members with a share, a chain of few elements and one of
 * many, with flags and data in the arena, then in memory of `home`. The outputs are the seconds of
 * both chains together. Every member must exchange in its plan. links_measure.c. [setup] */
tdm_status meta_links_compare(meta_device *device, int32_t home, double *arena_out,
                              double *peer_out, tdm_error *err);

/* Seconds that an exchange takes a member besides its bytes and the wait for others; a default
 * where they were not measured. [any-thread] */
double meta_crossing_seconds(const meta_member *member);
/* The same with the submission that follows where the member's plan is cut. [any-thread] */
double meta_exchange_seconds(const meta_member *member);

#endif
