/* SPDX-License-Identifier: MIT
 *
 * layout.h: layouts (tandem/split.h) in their normal form, and layouts as cuts along an axis.
 *
 * A SPLIT layout is stated in linear element order, so that a reshape keeps it. Ops refer to axes.
 * meta_cut is the same layout as a cut along one axis of one shape. meta_layout_get_cut converts to
 * a cut where an axis describes the layout; meta_layout_from_cut converts back.
 *
 * Normal form. It depends only on which member holds which element:
 *   - `outer` is the largest possible number of repetitions (the pattern has its smallest period);
 *   - `inner` is the largest number that divides every boundary and length in elements;
 *   - a segment is as long as possible from where it begins: it ends before a member would hold, or
 *     own, a second range in it;
 *   - an empty range is 0, 0; unused segments and members are zero bytes; struct_size is set.
 * So equal layouts are equal bytes. A value that the same members hold everywhere has the period 1.
 * An empty value (count 0) keeps its pattern and has outer 0: a value [n_ff, 0] is still cut along
 * n_ff. A pattern without elements becomes outer 0, inner 1 and one segment of 0 units.
 */
#ifndef TANDEM_META_LAYOUT_H
#define TANDEM_META_LAYOUT_H

#include "tandem/split.h"

/* A value that is cut along one axis. The axis consists of `repeat` patterns of segments. */
typedef struct meta_cut {
    int32_t axis;      /* 0 .. 3 */
    int32_t n_segment; /* 1 .. TDM_MAX_SEGMENTS */
    int64_t repeat;    /* >= 1; ne[axis] = repeat * sum of the segments' lengths */
    tdm_layout_segment segments[TDM_MAX_SEGMENTS]; /* n_unit, lo, hi in elements of the axis */
} meta_cut;

/* The greatest common divisor of two counts. Where one is 0, the other. [any-thread] */
int64_t meta_gcd(int64_t a, int64_t b);

void meta_layout_replicated(int32_t n_member, tdm_replica replica, tdm_layout *out);
/* kind: TDM_LAYOUT_PARTIAL_SUM or _LSE. */
void meta_layout_partial(int32_t n_member, tdm_layout_kind kind, tdm_layout *out);

/* Brings a layout to its normal form. TDM_INVALID_ARGUMENT, with no change, for an invalid layout:
 * ranges outside their segment, units without a holder, negative counts, products that overflow, or
 * a normal form of more than TDM_MAX_SEGMENTS segments. The last can happen where ranges are not in
 * ascending order of members: a member may then own several pieces of a segment. [any-thread] */
tdm_status meta_layout_normalize(tdm_layout *layout, tdm_error *err);

/* Elements of a value with this SPLIT layout: outer * sum of n_unit * inner. */
int64_t meta_layout_count(const tdm_layout *layout);

/* The layout, in normal form, that cuts a value of shape `ne` by `cut`, which is valid for `ne`.
 * The normal form must not need more than TDM_MAX_SEGMENTS segments, which holds for ranges in
 * ascending order of members. */
void meta_layout_from_cut(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t n_member,
                          tdm_layout *out);

/* A SPLIT layout in normal form as a cut of shape `ne`. False where no axis describes it: a
 * member's part is then no box. At most one axis does, except for a value that is empty or that the
 * same members hold everywhere: then the lowest axis is taken, and repeat is 1. The segments are
 * those of the normal form. Example: a fused gate and up, both cut alike, has repeat 2. */
bool meta_layout_get_cut(const tdm_layout *layout, const int64_t ne[TDM_MAX_DIMS], meta_cut *out);
/* The same for a given axis; false where that axis does not describe the layout. */
bool meta_layout_get_cut_along(const tdm_layout *layout, const int64_t ne[TDM_MAX_DIMS],
                               int32_t axis, meta_cut *out);

/* The shape of member d's part. */
void meta_cut_local_shape(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t d,
                          int64_t ne_out[TDM_MAX_DIMS]);
/* Elements of one pattern that member d holds. */
int64_t meta_cut_local_length(const meta_cut *cut, int32_t d);
/* The units of a segment that member d owns: those that it holds and no lower member holds, as the
 * range [*lo_out, *hi_out); 0, 0 = none. In the normal form, and in cuts derived from it, they are
 * one range. */
void meta_segment_owned(const tdm_layout_segment *segment, int32_t d, int64_t *lo_out,
                        int64_t *hi_out);
/* The same for segment s of a cut, in elements of the axis. */
void meta_cut_owned(const meta_cut *cut, int32_t s, int32_t d, int64_t *lo_out, int64_t *hi_out);
/* True when no element is held by two members. */
bool meta_cut_is_disjoint(const meta_cut *cut, int32_t n_member);
/* True when each member holds at least the elements by `whole` that it holds by `part`. False where
 * axis or total length differ. Repeat and segments of the two may differ. */
bool meta_cut_contains(const meta_cut *whole, const meta_cut *part, int32_t n_member);
/* The cut of elements off .. off+len-1 of the cut axis, as SLICE gives it. local_off_out[d] is
 * where the window begins in member d's part of the axis. The segments are those of the normal form
 * of the window. repeat is 1, except for a window of several whole patterns. A window of length 0
 * has one empty segment. False, with *out unchanged, where more than TDM_MAX_SEGMENTS are needed.
 * `out` may be `cut`. */
bool meta_cut_window(const meta_cut *cut, int64_t off, int64_t len, int32_t n_member, meta_cut *out,
                     int64_t *local_off_out);

/* The cut of the CONCAT of two values along their cut axis. False, with *out unchanged, where more
 * than TDM_MAX_SEGMENTS are needed. `out` may be `a` or `b`. */
bool meta_cut_join(const meta_cut *a, const meta_cut *b, int32_t n_member, meta_cut *out);

/* A set of layouts, each once, so that equal layouts have equal ids. Owned by a plan. */
typedef struct meta_layout_set {
    tdm_layout *layouts;
    int32_t n_layout;
    int32_t capacity;
} meta_layout_set;

struct tdm_host;
/* The id (>= 0) of a layout in normal form. A new layout is added. -1 without memory. */
int32_t meta_layout_intern(const struct tdm_host *host, meta_layout_set *set,
                           const tdm_layout *layout);

/* A layout as text for plans and messages: "split 8x[4|4]x32 0:0-3|0-3 1:3-4|3-4" (units of the
 * segments, then each member's units of each segment), "replicated", "replicated exactly", "partial
 * sum". Writes at most text_size bytes (>= 1) including the NUL; returns text. layout_print.c. */
const char *meta_layout_print(const tdm_layout *layout, char *text, size_t text_size);

#endif
