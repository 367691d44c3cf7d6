/* SPDX-License-Identifier: MIT
 *
 * noise_file.h: copies of models whose embeddings are changed a little, as rounding changes them.
 * How far the results of one device then move is how far results may be apart where nothing but
 * rounding differs: beside a quantised cache, a router or a selection it is much more than the
 * rounding itself.
 */
#ifndef TANDEM_TESTS_NOISE_FILE_H
#define TANDEM_TESTS_NOISE_FILE_H

/* Writes a copy of the GGUF file `from` to `to` in which every element of the token embeddings is
 * multiplied by a random number between 1 - strength and 1 + strength; where these are not f32, the
 * elements of the norms' weights. Fails the running test where there is nothing to change. */
void noise_file_write(const char *from, const char *to, double strength, int seed);

#endif
