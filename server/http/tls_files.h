/* SPDX-License-Identifier: MIT
 *
 * tls_files.h: checks the certificate and the key of TLS, so that the message names the file and
 * what is wrong: the HTTP library reports only that it cannot serve.
 */
#ifndef TANDEM_SERVER_TLS_FILES_H
#define TANDEM_SERVER_TLS_FILES_H

#include "tandem/status.h"

/* Reads the certificate and the private key (both PEM, the key without a passphrase) and compares
 * them. TDM_IO where a file cannot be read, TDM_INVALID_ARGUMENT where it has no certificate or
 * key, or they are not of one pair; the message names the file. [any-thread] */
tdm_status server_tls_files_check(const char *cert_path, const char *key_path, tdm_error *err);

#endif
