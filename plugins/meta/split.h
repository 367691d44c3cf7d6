/* SPDX-License-Identifier: MIT
 *
 * split.h: the functions by which a host prepares a group for a model and reads its report
 * (tandem/split.h).
 */
#ifndef TANDEM_META_SPLIT_H
#define TANDEM_META_SPLIT_H

#include "tandem/split.h"

extern const tdm_split_ops meta_split_ops;

#endif
