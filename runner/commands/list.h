/* SPDX-License-Identifier: MIT
 *
 * list.h: the commands, in the order of the help text. RUNNER_COMMAND(NAME) is NAME.c in this
 * folder, which defines `const runner_command runner_command_NAME`; meson.build compiles it.
 */
RUNNER_COMMAND(run)
RUNNER_COMMAND(chat)
#ifdef RUNNER_HAS_SERVE /* where libwebsockets, jansson and OpenSSL are found */
RUNNER_COMMAND(serve)
#endif
RUNNER_COMMAND(plan)
RUNNER_COMMAND(embed)
RUNNER_COMMAND(logits)
RUNNER_COMMAND(bench)
RUNNER_COMMAND(perplexity)
RUNNER_COMMAND(needle)
RUNNER_COMMAND(tokenize)
RUNNER_COMMAND(devices)
RUNNER_COMMAND(config)
RUNNER_COMMAND(imatrix)
RUNNER_COMMAND(calibrate)
RUNNER_COMMAND(quantize)
RUNNER_COMMAND(info)
RUNNER_COMMAND(certify)
