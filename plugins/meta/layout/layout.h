/* SPDX-License-Identifier: MIT
 *
 * layout.h: layouts (tandem/split.h) in their normal form, and how they look along an axis.
 *
 * A SPLIT layout is written in linear element order, so that it survives a reshape; ops think in
 * axes. meta_cut is the same thing seen along one axis of one shape; meta_layout_get_cut goes from
 * the former to the latter where there is one, meta_layout_from_cut back.
 *
 * Normal form. What counts is who holds which element, so it follows from that alone: `outer` is
 * the largest number of repetitions (the pattern's smallest period), `inner` the largest number that
 * divides every boundary and length in elements, a segment as long as it can be from where it
 * begins: up to where some member would come, or own, a second time. An empty range is 0, 0;
 * unused segments and members are zero bytes; struct_size is set. Equal layouts are equal bytes. A
 * value that the same members hold everywhere has the period 1. Of an empty value (count 0) only
 * what its pattern says is kept: outer 0 keeps it whole, so that n_ff columns of no tokens are still
 * cut; a pattern without elements is outer 0, inner 1, one segment of no units.
 */
#ifndef TANDEM_META_LAYOUT_H
#define TANDEM_META_LAYOUT_H

#include "tandem/split.h"

/* A value cut along one axis: the axis is `repeat` times the same pattern of segments. */
typedef struct meta_cut {
    int32_t axis;      /* 0 .. 3 */
    int32_t n_segment; /* 1 .. TDM_MAX_SEGMENTS */
    int64_t repeat;    /* >= 1; ne[axis] = repeat * sum of the segments' lengths */
    tdm_layout_segment segments[TDM_MAX_SEGMENTS]; /* n_unit, lo, hi in elements of the axis */
} meta_cut;

/* Greatest common divisor of two counts; the other where one is 0. [any-thread] */
int64_t meta_gcd(int64_t a, int64_t b);

void meta_layout_replicated(int32_t n_member, tdm_replica replica, tdm_layout *out);
/* kind: TDM_LAYOUT_PARTIAL_SUM or _LSE. */
void meta_layout_partial(int32_t n_member, tdm_layout_kind kind, tdm_layout *out);

/* Brings a layout to its normal form. TDM_INVALID_ARGUMENT, and no change, says what is wrong with
 * one that is none: ranges outside their segment, units that nobody holds, negative counts, products
 * that overflow, ranges of members that descend so that what one owns is in pieces. [any-thread] */
tdm_status meta_layout_normalize(tdm_layout *layout, tdm_error *err);

/* Elements that the pattern describes in all: outer * sum of n_unit * inner. */
int64_t meta_layout_count(const tdm_layout *layout);

/* The layout of a value of shape `ne` cut like that; `cut` is valid for the shape. Normal form. */
void meta_layout_from_cut(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t n_member,
                          tdm_layout *out);

/* How a SPLIT layout in normal form cuts a value of that shape along one axis; false where no axis
 * does, so that a member's part is no box. There is at most one axis, but for a value that the same
 * members hold everywhere or that is empty: then the lowest, and repeat is 1. Segments are those of
 * the normal form: of a fused gate and up, cut alike, repeat is 2. */
bool meta_layout_get_cut(const tdm_layout *layout, const int64_t ne[TDM_MAX_DIMS], meta_cut *out);
/* The same along a given axis; false where that axis does not cut it so. */
bool meta_layout_get_cut_along(const tdm_layout *layout, const int64_t ne[TDM_MAX_DIMS],
                               int32_t axis, meta_cut *out);

/* The shape of member d's part. */
void meta_cut_local_shape(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t d,
                          int64_t ne_out[TDM_MAX_DIMS]);
/* Elements of one pattern that member d holds. */
int64_t meta_cut_local_length(const meta_cut *cut, int32_t d);
/* The units of a segment that member d owns: of what it holds, what no lower member does, as the
 * range [*lo_out, *hi_out). In a normal form, and in cuts made of one, that is one range; empty as
 * 0, 0. */
void meta_segment_owned(const tdm_layout_segment *segment, int32_t d, int64_t *lo_out,
                        int64_t *hi_out);
/* The same of segment s of a cut, in elements of the axis. */
void meta_cut_owned(const meta_cut *cut, int32_t s, int32_t d, int64_t *lo_out, int64_t *hi_out);
/* True when no element is held twice. */
bool meta_cut_is_disjoint(const meta_cut *cut, int32_t n_member);
/* True when what each member holds of `part` it also holds of `whole`. Both of one axis and of one
 * length in all; how they are written (repeat, segments) may differ. */
bool meta_cut_contains(const meta_cut *whole, const meta_cut *part, int32_t n_member);
/* The cut of elements off .. off+len-1 of the cut axis, as SLICE gives it. local_off_out[d] is where
 * it begins in member d's part of the axis. Segments are joined or begin elsewhere as in the normal
 * form; repeat is 1 but for a window of several whole patterns; one of length 0 has one empty
 * segment. False, and *out as it was, where it takes more than TDM_MAX_SEGMENTS: a window over parts
 * of many patterns. out may be cut. */
bool meta_cut_window(const meta_cut *cut, int64_t off, int64_t len, int32_t n_member, meta_cut *out,
                     int64_t *local_off_out);

/* The cut of what CONCAT makes of two along their cut axis. False, and *out as it was, where it takes
 * more than TDM_MAX_SEGMENTS. out may be a or b. */
bool meta_cut_join(const meta_cut *a, const meta_cut *b, int32_t n_member, meta_cut *out);

/* Layouts that occurred, each once: equality is equality of ids. Owned by a plan. */
typedef struct meta_layout_set {
    tdm_layout *layouts;
    int32_t n_layout;
    int32_t capacity;
} meta_layout_set;

struct tdm_host;
/* The id (>= 0) of a layout in normal form; added when new. -1 without memory. */
int32_t meta_layout_intern(const struct tdm_host *host, meta_layout_set *set,
                           const tdm_layout *layout);

/* "split 8x[4|4]x32 0:0-3|0-3 1:3-4|3-4" (segments' units, then each member's units of each),
 * "replicated", "replicated exactly", "partial sum": for plans and messages; at most text_size bytes
 * (>= 1), NUL included; returns text. layout_print.c. */
const char *meta_layout_print(const tdm_layout *layout, char *text, size_t text_size);

#endif
