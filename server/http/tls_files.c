/* SPDX-License-Identifier: MIT
 *
 * tls_files.c: see tls_files.h.
 */
#include "server/http/tls_files.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

/* The passphrase callback: there is none, so a key with a passphrase cannot be read. */
static int no_passphrase(char *text, int size, int is_writing, void *user) {
    (void)text, (void)size, (void)is_writing, (void)user;
    return -1;
}

static tdm_status file_open(const char *path, FILE **out, tdm_error *err) {
    errno = 0;
    *out = fopen(path, "rb");
    if (*out != NULL) return TDM_OK;
    return tdm_fail(err, TDM_IO, "%s: cannot be read: %s", path, strerror(errno));
}

static tdm_status key_check(X509 *cert, const char *cert_path, const char *key_path,
                            tdm_error *err) {
    FILE *file = NULL;
    tdm_status status = file_open(key_path, &file, err);
    if (status != TDM_OK) return status;
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, no_passphrase, NULL);
    fclose(file);
    if (key == NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "%s: has no private key in PEM form, or one with a passphrase; take one "
                          "without",
                          key_path);
    else if (X509_check_private_key(cert, key) != 1)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "%s: the certificate is not that of the key in %s; give two files of one "
                          "pair",
                          cert_path, key_path);
    EVP_PKEY_free(key);
    return status;
}

tdm_status server_tls_files_check(const char *cert_path, const char *key_path, tdm_error *err) {
    FILE *file = NULL;
    tdm_status status = file_open(cert_path, &file, err);
    if (status != TDM_OK) return status;
    X509 *cert = PEM_read_X509(file, NULL, no_passphrase, NULL);
    fclose(file);
    status = cert != NULL ? key_check(cert, cert_path, key_path, err)
                          : tdm_fail(err, TDM_INVALID_ARGUMENT,
                                     "%s: has no certificate in PEM form", cert_path);
    X509_free(cert);
    ERR_clear_error(); /* else a connection of the same thread reports the errors left here */
    return status;
}
